//! Every call has an end.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::fake::Fake;
use super::private::PrivateBus;
use super::{BusError, Object};

const MUTE: Object<'static> =
    Object { service: "com.example.Mute", path: "/com/example", interface: "com.example.Mute" };

/// It owns its name, takes calls, and answers none.
#[tokio::test]
async fn a_service_that_hangs_is_given_up() {
    let bus = PrivateBus::start();
    let mute = Fake::serve(&bus.bus(), MUTE.service, |_, _| None).await;
    let link = bus.bus().connect().await.unwrap();
    let short = Duration::from_millis(100);
    let calls = async {
        let called: Result<(), BusError> = link.call_within(MUTE, "Say", &(), short).await;
        let read = link.property(MUTE, "Word", short).await;
        (called.unwrap_err(), read.unwrap_err())
    };
    let (called, read) = tokio::time::timeout(Duration::from_secs(60), calls).await.unwrap();
    for (error, word) in [(called, "Say"), (read, "Word")] {
        let BusError::TimedOut { service, member, after } = error else { panic!("{error}") };
        assert_eq!((service.as_str(), member.as_str(), after), (MUTE.service, word, short));
    }
    // Others are still heard on the same connection.
    assert!(link.owner_of(MUTE.service).await.unwrap().is_some());
    assert_eq!(mute.calls(), ["Say", "Get:Word"]);
}
