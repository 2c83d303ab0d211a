//! The only file that reads clocks.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::Sender;

use crate::lifecycle::Event;
use crate::model::Now;
use crate::signals::bus::retry::Retry;

/// Both clocks, read now.
#[expect(clippy::disallowed_methods, reason = "this is the place that the ban points to")]
pub fn now() -> Now {
    Now { wall: Timestamp::now(), since_boot: since_boot() }
}

/// `CLOCK_BOOTTIME`: time since the boot, suspends included.
pub fn since_boot() -> Duration {
    // The kernel has this clock since 2.6.39; zero would only make a timeout late.
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map_or(Duration::ZERO, Duration::from)
}

/// Tells when somebody set the wall clock (a jump, not the slow pull of a time service).
pub async fn watch(events: Sender<Event>) {
    let mut retry = Retry::default();
    let mut told = None;
    loop {
        let end = tokio::select! {
            () = events.closed() => return,
            end = session(&events, &mut retry) => end,
        };
        let Err(error) = end else { return };
        if told != Some(error) {
            tracing::warn!(error = %error, "changes of the wall clock cannot be seen");
            told = Some(error);
        }
        tokio::time::sleep(retry.failed()).await;
    }
}

/// Ends well only when nobody listens any more.
async fn session(events: &Sender<Event>, retry: &mut Retry) -> Result<(), Errno> {
    let timer = Timer::new(ClockId::CLOCK_REALTIME)?;
    let mut was_set = arm(&timer)?;
    let timer = timer.awaited()?;
    loop {
        if was_set {
            retry.succeeded();
            if events.send(Event::ClockSet).await.is_err() {
                return Ok(());
            }
        }
        let mut ready = timer.readable().await.map_err(errno)?;
        was_set = match nix::unistd::read(timer.get_ref(), &mut [0u8; 8]) {
            // The kernel cancels the timer when the clock is set, and says so in this way.
            Err(Errno::ECANCELED) => true,
            Err(Errno::EAGAIN) => {
                ready.clear_ready();
                false
            }
            Err(Errno::EINTR) => false,
            Err(error) => return Err(error),
            Ok(_) => false,
        };
        was_set |= arm(timer.get_ref())?;
    }
}

/// Arms the timer for a day that does not come; what counts is that it is cancelled. `true`: the
/// clock was set since the timer was last read; it is armed all the same.
fn arm(timer: &Timer) -> Result<bool, Errno> {
    /// The year 2200, in seconds.
    const FAR: i64 = 7_258_118_400;
    let armed = timer.0.set(
        Expiration::OneShot(TimeSpec::new(FAR, 0)),
        TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET,
    );
    match armed {
        Ok(()) => Ok(false),
        Err(Errno::ECANCELED) => Ok(true),
        Err(error) => Err(error),
    }
}

fn errno(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Ticks evenly. The runtime's own timers wake an idle process two or three times for one long wait;
/// the kernel's do so once.
#[derive(Debug)]
pub struct Ticker {
    timer: AsyncFd<Timer>,
}

/// The next tick; never, where there is no ticker.
pub async fn tick(ticker: &mut Option<Ticker>) {
    match ticker {
        Some(ticker) => ticker.tick().await,
        None => std::future::pending().await,
    }
}

impl Ticker {
    /// The first tick comes after `every`, which is more than zero.
    ///
    /// # Errors
    /// That of the kernel: no descriptors are left.
    pub fn new(every: Duration) -> std::io::Result<Self> {
        let timer = Timer::new(ClockId::CLOCK_MONOTONIC)?;
        let every = Expiration::Interval(TimeSpec::from_duration(every));
        timer.0.set(every, TimerSetTimeFlags::empty())?;
        Ok(Self { timer: timer.awaited()? })
    }

    /// Comes back once per tick; ticks that nobody waited for are one.
    pub async fn tick(&mut self) {
        // An error would be that the runtime ends.
        while let Ok(mut ready) = self.timer.readable().await {
            match nix::unistd::read(self.timer.get_ref(), &mut [0u8; 8]) {
                Ok(_) => return,
                Err(_) => ready.clear_ready(),
            }
        }
    }
}

#[derive(Debug)]
struct Timer(TimerFd);

impl Timer {
    fn new(clock: ClockId) -> Result<Self, Errno> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        TimerFd::new(clock, flags).map(Self)
    }

    // Its successor is unsafe, which is forbidden here. The timer keeps its one descriptor until the
    // AsyncFd is dropped, which is what that one asks for.
    #[allow(deprecated)]
    fn awaited(self) -> Result<AsyncFd<Self>, Errno> {
        AsyncFd::new(self).map_err(errno)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use nix::time::{ClockId as Clock, clock_gettime, clock_settime};
    use tokio::time::timeout;

    use super::*;

    /// How far the wall clock may be from where it was, afterwards, in nanoseconds.
    const STEP_MAX: i128 = 500_000;

    fn read(clock: Clock) -> i128 {
        i128::try_from(Duration::from(clock_gettime(clock).unwrap()).as_nanos()).unwrap()
    }

    /// How far the wall clock is ahead of the time since boot, in nanoseconds: the best of some
    /// looks, since this process may be put aside between two readings.
    fn ahead() -> i128 {
        let look = || {
            let (before, wall) = (read(Clock::CLOCK_BOOTTIME), read(Clock::CLOCK_REALTIME));
            let after = read(Clock::CLOCK_BOOTTIME);
            (after - before, wall - before)
        };
        (0..100).map(|_| look()).min().unwrap().1
    }

    /// Sets the machine's wall clock to what it says anyway: a step of some hundred nanoseconds.
    /// Where the process was put aside meanwhile the step was longer, and is mended at once.
    fn set_the_clock_to_itself() {
        let before = ahead();
        for _ in 0..100 {
            let wall = u64::try_from(before + read(Clock::CLOCK_BOOTTIME)).unwrap();
            let wall = TimeSpec::from_duration(Duration::from_nanos(wall));
            if let Err(error) = clock_settime(Clock::CLOCK_REALTIME, wall) {
                panic!(
                    "THIS ENVIRONMENT IS UNFIT: the clock may not be set ({error}), so that nothing \
                     can be said of what the agent sees then. The test wants CAP_SYS_TIME."
                );
            }
            if (ahead() - before).abs() < STEP_MAX {
                return;
            }
        }
        panic!(
            "THIS ENVIRONMENT IS UNFIT: the clock cannot be set exactly, the machine is too busy"
        );
    }

    /// Set between the reading of the timer and its arming, which no loop can rule out.
    #[test]
    fn a_clock_that_is_set_before_the_timer_is_armed_is_no_failure() {
        let timer = Timer::new(ClockId::CLOCK_REALTIME).unwrap();
        assert_eq!(arm(&timer), Ok(false));
        set_the_clock_to_itself();
        assert_eq!(arm(&timer), Ok(true));
        assert_eq!(arm(&timer), Ok(false), "told once");
        set_the_clock_to_itself();
        let read = nix::unistd::read(&timer, &mut [0u8; 8]);
        assert_eq!(read, Err(Errno::ECANCELED), "armed all the same");
    }

    /// Really set, and really heard: the kernel's own word, and each time anew.
    #[tokio::test]
    async fn a_clock_that_is_set_is_heard_each_time() {
        let (events, mut heard) = tokio::sync::mpsc::channel(64);
        tokio::spawn(watch(events));
        tokio::task::yield_now().await;
        for time in 1..=3 {
            let mut told = None;
            // The watch may not be there yet, or not again.
            for _ in 0..60 {
                set_the_clock_to_itself();
                told = timeout(Duration::from_secs(1), heard.recv()).await.ok();
                if told.is_some() {
                    break;
                }
            }
            assert_eq!(told, Some(Some(Event::ClockSet)), "time {time}");
            // What one setting brought is over before the next begins.
            while timeout(Duration::from_millis(50), heard.recv()).await.is_ok() {}
        }
    }

    #[test]
    fn time_since_boot_moves_forward() {
        let first = since_boot();
        assert!(first > Duration::ZERO);
        assert!(now().since_boot >= first);
    }

    #[tokio::test]
    async fn ticks_come_evenly_and_those_that_were_missed_are_one() {
        let every = Duration::from_millis(20);
        let mut ticker = Ticker::new(every).unwrap();
        let began = since_boot();
        for _ in 0..3 {
            ticker.tick().await;
        }
        assert!(since_boot() - began >= 2 * every);
        // Sleeps: to miss ticks.
        tokio::time::sleep(5 * every).await;
        ticker.tick().await;
        assert!(timeout(every / 20, ticker.tick()).await.is_err(), "one for all that were missed");
    }

    #[tokio::test]
    async fn an_armed_timer_waits_and_ends_with_its_listener() {
        let (events, mut heard) = tokio::sync::mpsc::channel(1);
        let watch = tokio::spawn(watch(events));
        tokio::task::yield_now().await;
        assert!(heard.try_recv().is_err());
        drop(heard);
        tokio::time::timeout(Duration::from_secs(10), watch).await.unwrap().unwrap();
    }
}
