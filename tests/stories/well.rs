//! `well until STAGE`: the part of a story in which everything works, told by its changes of stage.

use lockkeeper::fleetlock::{ReleaseAnswer, SlotAnswer};
use lockkeeper::lifecycle::{
    BootEvidence, Cordon, CordonAnswer, DrainEnd, Effect, Event, Health, HostView, NodeView,
    RebootAnswer, Rehearsal, UncordonAnswer, Verification,
};

/// The outcome of an effect that works.
pub(crate) fn outcome(effect: &Effect, node: Option<&NodeView>, cordon: Cordon) -> Event {
    match effect {
        Effect::Inspect => Event::Inspected(HostView {
            finalize_unit_active: true,
            clock_synchronised: true,
            ..HostView::default()
        }),
        Effect::ReadBoot => Event::BootRead(BootEvidence::default()),
        Effect::ReadNode => Event::NodeRead(Ok(node.expect("a Node was told of").clone())),
        Effect::Rehearse => Event::Rehearsed(Rehearsal::Passes),
        Effect::RequestSlot { .. } => Event::SlotAnswered(SlotAnswer::Granted),
        Effect::ReleaseSlot => Event::SlotReleased(ReleaseAnswer::Released),
        Effect::Cordon { .. } => Event::Cordoned(match cordon {
            Cordon::Foreign => CordonAnswer::Foreign,
            Cordon::Ours | Cordon::None => CordonAnswer::Ours,
        }),
        Effect::Drain { .. } => Event::DrainEnded(DrainEnd::Empty),
        Effect::StopDrain => Event::DrainEnded(DrainEnd::Stopped),
        Effect::VerifyEmpty { .. } => Event::Verified(Verification::Good),
        Effect::Reboot { .. } => Event::RebootAnswered(RebootAnswer::Accepted),
        Effect::AllowZincati { .. } => Event::ZincatiAllowed(true),
        Effect::UndoReboot { .. } => Event::RebootUndone(Ok(())),
        Effect::CheckHealth => Event::HealthChecked(Health::Well),
        Effect::Uncordon => Event::Uncordoned(match cordon {
            Cordon::Foreign => UncordonAnswer::Foreign,
            Cordon::Ours => UncordonAnswer::Lifted,
            Cordon::None => UncordonAnswer::AlreadySchedulable,
        }),
        Effect::RestoreCordon => Event::CordonRestored(Ok(false)),
    }
}
