//! The cells: which stage is hit by which fault.

use crate::fault::Fault;
use crate::place::Place;

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Where it is hit.
    pub place: Place,
    /// By what.
    pub fault: Fault,
}

/// What is hit in mid-cycle also in the short sweep, beside SIGKILL and power cut at every stage.
const MID_CYCLE: [(Place, Fault); 11] = [
    (Place::Draining, Fault::Bus),
    (Place::Rebooting, Fault::Bus),
    (Place::Settling, Fault::Bus),
    (Place::Waiting, Fault::Daemon),
    (Place::Rebooting, Fault::Daemon),
    (Place::Draining, Fault::Api),
    (Place::Settling, Fault::Api),
    (Place::Uncordoning, Fault::Api),
    (Place::Requesting, Fault::Coordinator),
    (Place::Draining, Fault::Coordinator),
    (Place::Releasing, Fault::Coordinator),
];

// === impl Cell ===

impl Cell {
    /// `draining-kill`.
    pub fn name(self) -> String {
        format!("{}-{}", self.place.name(), self.fault.name())
    }
}

/// Every cell there is.
pub fn full() -> Vec<Cell> {
    let of = |fault| Place::ALL.into_iter().map(move |place| Cell { place, fault });
    Fault::ALL.into_iter().flat_map(of).collect()
}

/// Those of the short sweep.
pub fn short() -> Vec<Cell> {
    let taken = |cell: &Cell| {
        matches!(cell.fault, Fault::Kill | Fault::Cut)
            || MID_CYCLE.contains(&(cell.place, cell.fault))
    };
    full().into_iter().filter(taken).collect()
}
