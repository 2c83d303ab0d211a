//! Tells one story after another, and ends the lab whatever happens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use crate::world::World;

/// A test: a promise, and how it is put to the proof.
pub struct Story {
    /// The promise.
    pub name: &'static str,
    /// The proof; panics where the promise is broken.
    pub tell: fn(&World),
}

/// What was asked for on the command line, in the words of the usual runner.
#[derive(Default)]
struct Wanted {
    words: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
}

/// Runs the stories that the command line names.
pub fn run(all: &'static [Story]) -> ExitCode {
    let wanted = match Wanted::read(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let stories: Vec<&'static Story> = all.iter().filter(|story| wanted.has(story.name)).collect();
    if wanted.list {
        stories.iter().for_each(|story| println!("{}: test", story.name));
        return ExitCode::SUCCESS;
    }
    if stories.is_empty() {
        eprintln!("no story has such a name; --list prints them");
        return ExitCode::from(2);
    }
    println!("\nrunning {} tests", stories.len());
    let began = Instant::now();
    let failed = tell(&stories);
    let result = if failed.is_empty() { "ok" } else { "FAILED" };
    failed.iter().for_each(|name| println!("    {name}"));
    println!(
        "\ntest result: {result}. {} passed; {} failed; {} s\n",
        stories.len() - failed.len(),
        failed.len(),
        began.elapsed().as_secs()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The names of those that failed. The lab is gone when this returns, if it was not there before.
fn tell(stories: &[&'static Story]) -> Vec<&'static str> {
    let world = match catch_unwind(World::new) {
        Ok(world) => world,
        Err(_) => return stories.iter().map(|story| story.name).collect(),
    };
    let mut failed = Vec::new();
    for story in stories {
        let began = Instant::now();
        println!("test {} ...", story.name);
        let told = catch_unwind(AssertUnwindSafe(|| {
            world.begin();
            (story.tell)(&world);
            world.errors_fail();
        }));
        if told.is_err() {
            world.report();
        }
        let restored = catch_unwind(AssertUnwindSafe(|| world.restore(told.is_err())));
        let word = if told.is_ok() && restored.is_ok() { "ok" } else { "FAILED" };
        println!("test {} ... {word} ({:.1} s)", story.name, began.elapsed().as_secs_f64());
        if word != "ok" {
            failed.push(story.name);
        }
    }
    failed
}

// === impl Wanted ===

impl Wanted {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut wanted = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--exact" => wanted.exact = true,
                "--list" => wanted.list = true,
                "--skip" => wanted.skip.push(arguments.next().ok_or("--skip takes a word")?),
                // Stories are told one at a time and show what they say in any case.
                "--test-threads" => drop(arguments.next()),
                "--nocapture" | "--no-capture" | "--quiet" | "-q" | "--show-output" => {}
                other if other.starts_with("--test-threads=") => {}
                other if other.starts_with('-') => return Err(format!("unknown option {other}")),
                _ => wanted.words.push(argument),
            }
        }
        Ok(wanted)
    }

    fn has(&self, name: &str) -> bool {
        let fits = |word: &String| if self.exact { name == word } else { name.contains(word) };
        (self.words.is_empty() || self.words.iter().any(fits)) && !self.skip.iter().any(fits)
    }
}
