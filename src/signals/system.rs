//! What all sources of updates say, as one.
//!
//! The heart hears of it once every source that was chosen has spoken, be it of trouble: an update
//! that one of them did not tell yet is not one that went away.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc::{Receiver, Sender};

use crate::lifecycle::Event;
use crate::model::{Reading, Source, SystemView};

/// What one source says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Who speaks.
    pub source: Source,
    /// What it read; `Err`: why it cannot be read, one line of bounded length.
    pub reading: Result<Reading, String>,
}

/// All that was heard.
#[derive(Debug)]
struct Chorus {
    chosen: BTreeSet<Source>,
    readings: BTreeMap<Source, Reading>,
    troubles: BTreeMap<Source, String>,
    told: Option<(Option<SystemView>, Option<String>)>,
}

/// Joins what the chosen sources say, and tells the heart what is new. Ends when nobody speaks or
/// listens any more.
pub async fn join(chosen: BTreeSet<Source>, mut heard: Receiver<Heard>, events: Sender<Event>) {
    let mut chorus = Chorus::new(chosen);
    loop {
        for event in chorus.news() {
            if events.send(event).await.is_err() {
                return;
            }
        }
        match heard.recv().await {
            Some(heard) => chorus.hear(heard),
            None => return,
        }
    }
}

impl Chorus {
    fn new(chosen: BTreeSet<Source>) -> Self {
        let (readings, troubles) = (BTreeMap::new(), BTreeMap::new());
        Self { chosen, readings, troubles, told: None }
    }

    fn hear(&mut self, heard: Heard) {
        match heard.reading {
            Ok(reading) => {
                self.troubles.remove(&heard.source);
                self.readings.insert(heard.source, reading);
            }
            Err(why) => {
                self.troubles.insert(heard.source, why);
            }
        }
    }

    /// What the heart does not know yet.
    fn news(&mut self) -> Vec<Event> {
        let silent =
            |source| !self.readings.contains_key(source) && !self.troubles.contains_key(source);
        if self.chosen.iter().any(silent) {
            return Vec::new();
        }
        let (view, trouble) = (self.view(), self.trouble());
        let (told_view, told_trouble) = self.told.clone().unwrap_or_default();
        let mut news = Vec::new();
        // A view ends all trouble, so that trouble which goes on is told after it.
        let recovered = told_trouble.is_some() && trouble.is_none();
        if let Some(view) = view.clone()
            && (recovered || told_view.as_ref() != Some(&view))
        {
            news.push(Event::System(view));
        }
        if let Some(why) = trouble.clone()
            && (!news.is_empty() || told_trouble.as_ref() != Some(&why))
        {
            news.push(Event::SystemUnreadable(why));
        }
        self.told = Some((view, trouble));
        news
    }

    /// `None` while the systems of this host cannot be read: what else asks for a reboot must not go
    /// by without them.
    fn view(&self) -> Option<SystemView> {
        let mut view = SystemView::default();
        for source in &self.chosen {
            match self.readings.get(source) {
                Some(Reading::Deployments(deployments)) => {
                    view.source = *source;
                    view.deployments.clone_from(deployments);
                }
                Some(Reading::Wants(wants)) => view.wants.extend(wants.iter().cloned()),
                None if source.brings_a_system() => return None,
                None => {}
            }
        }
        Some(view)
    }

    fn trouble(&self) -> Option<String> {
        let told = |(source, why): (&Source, &String)| format!("{}: {why}", source.name());
        let troubles: Vec<String> = self.troubles.iter().map(told).collect();
        (!troubles.is_empty()).then(|| troubles.join("; "))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::wildcard_enum_match_arm)]

    use super::*;
    use crate::model::{Deployment, Target};

    fn systems(waits: Option<&str>) -> Reading {
        let system = |identity: &str, staged: bool| Deployment {
            identity: identity.to_owned(),
            version: None,
            place: None,
            booted: !staged,
            staged,
        };
        let staged = waits.map(|identity| system(identity, true));
        Reading::Deployments(staged.into_iter().chain([system("41", false)]).collect())
    }

    fn wants(paths: &[&str]) -> Reading {
        let want = |path: &&str| Target {
            source: Source::Sentinel,
            identity: (*path).to_owned(),
            version: None,
        };
        Reading::Wants(paths.iter().map(want).collect())
    }

    /// What the heart is told, each as words.
    fn told(chorus: &mut Chorus, source: Source, reading: Result<Reading, &str>) -> Vec<String> {
        chorus.hear(Heard { source, reading: reading.map_err(str::to_owned) });
        let words = |event| match event {
            Event::System(view) => {
                let names = view.reasons().into_iter().map(|reason| reason.identity);
                names.collect::<Vec<_>>().join("+")
            }
            Event::SystemUnreadable(why) => why,
            other => panic!("unexpected {other:?}"),
        };
        chorus.news().into_iter().map(words).collect()
    }

    #[test]
    fn nothing_is_told_before_all_have_spoken() {
        let mut chorus = Chorus::new(BTreeSet::from([Source::RpmOstree, Source::Sentinel]));
        assert!(chorus.news().is_empty());
        assert!(told(&mut chorus, Source::Sentinel, Ok(wants(&["file"]))).is_empty());
        assert_eq!(told(&mut chorus, Source::RpmOstree, Ok(systems(Some("42")))), ["42+file"]);
        assert!(told(&mut chorus, Source::RpmOstree, Ok(systems(Some("42")))).is_empty());
        assert_eq!(told(&mut chorus, Source::RpmOstree, Ok(systems(None))), ["file"]);
        assert_eq!(told(&mut chorus, Source::Sentinel, Ok(wants(&[]))), [""]);
    }

    #[test]
    fn trouble_is_a_word_and_hides_no_system_that_was_read() {
        let mut chorus = Chorus::new(BTreeSet::from([Source::RpmOstree, Source::Sentinel]));
        assert!(told(&mut chorus, Source::RpmOstree, Ok(systems(Some("42")))).is_empty());
        let news = told(&mut chorus, Source::Sentinel, Err("no such command"));
        assert_eq!(news, ["42", "sentinel: no such command"]);
        // The view alone would end the trouble.
        let news = told(&mut chorus, Source::RpmOstree, Ok(systems(None)));
        assert_eq!(news, ["", "sentinel: no such command"]);
        assert_eq!(told(&mut chorus, Source::Sentinel, Ok(wants(&[]))), [""]);
    }

    #[test]
    fn a_sentinel_does_not_pass_by_systems_that_cannot_be_read() {
        let mut chorus = Chorus::new(BTreeSet::from([Source::RpmOstree, Source::Sentinel]));
        assert!(told(&mut chorus, Source::Sentinel, Ok(wants(&["file"]))).is_empty());
        assert_eq!(told(&mut chorus, Source::RpmOstree, Err("masked")), ["rpm-ostree: masked"]);
        assert!(told(&mut chorus, Source::RpmOstree, Err("masked")).is_empty());
        assert_eq!(told(&mut chorus, Source::RpmOstree, Ok(systems(None))), ["file"]);
    }

    #[test]
    fn a_host_without_any_source_is_known_at_once() {
        assert_eq!(Chorus::new(BTreeSet::new()).news(), [Event::System(SystemView::default())]);
    }
}
