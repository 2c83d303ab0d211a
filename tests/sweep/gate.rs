//! A door between one host and the coordinator, so that the coordinator can be away for this host
//! alone; and a second client of the coordinator, who takes slots away.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The id of the other machine.
const ANOTHER: &str = "another";

/// The door. It passes bytes on and does not look at them.
pub struct Gate {
    /// Where the host's agent finds its slot server.
    pub url: String,
    /// Where the coordinator listens.
    coordinator: String,
    door: Arc<Door>,
}

#[derive(Default)]
struct Door {
    shut: AtomicBool,
    /// Both ends of every connection that was let in.
    inside: Mutex<Vec<TcpStream>>,
}

// === impl Gate ===

impl Gate {
    /// An open door to the coordinator at this address.
    pub fn new(coordinator: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let url = format!("http://{}/", listener.local_addr().expect("its address"));
        let door = Arc::new(Door::default());
        let (to, of) = (coordinator.to_owned(), Arc::clone(&door));
        // Both end with this process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                of.let_in(client, &to);
            }
        });
        Self { url, coordinator: coordinator.to_owned(), door }
    }

    /// From now on nobody gets through, and who is inside is thrown out.
    pub fn shut(&self) {
        let mut inside = self.door.inside.lock().expect("the door");
        self.door.shut.store(true, SeqCst);
        for stream in inside.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Open again.
    pub fn open(&self) {
        self.door.shut.store(false, SeqCst);
    }

    /// Another machine takes the slot of this group; it must be granted.
    #[track_caller]
    pub fn take_slot(&self, group: &str) {
        self.ask("v1/pre-reboot", group, ANOTHER);
    }

    /// And gives it back; fine if it has none.
    #[track_caller]
    pub fn give_slot(&self, group: &str) {
        self.release(group, ANOTHER);
    }

    /// Gives a slot back that somebody has.
    #[track_caller]
    pub fn release(&self, group: &str, id: &str) {
        self.ask("v1/steady-state", group, id);
    }

    /// A request that must be granted, past the door.
    #[track_caller]
    fn ask(&self, path: &str, group: &str, id: &str) {
        let body = format!(r#"{{"client_params":{{"id":"{id}","group":"{group}"}}}}"#);
        let mut stream = TcpStream::connect(&self.coordinator).expect("the coordinator");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let length = body.len();
        write!(
            stream,
            "POST /{path} HTTP/1.1\r\nHost: lab\r\nfleet-lock-protocol: true\r\n\
            Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path} of {id}: {answer}");
    }
}

// === impl Door ===

impl Door {
    /// A client whose server is away is turned away like one before a shut door.
    fn let_in(&self, client: TcpStream, to: &str) {
        let mut inside = self.inside.lock().expect("the door");
        if self.shut.load(SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect(to) else { return };
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
            std::thread::spawn(move || {
                drop(std::io::copy(&mut from, &mut to));
                drop(from.shutdown(Shutdown::Both));
                drop(to.shutdown(Shutdown::Both));
            });
        }
        inside.extend([client, server]);
    }
}
