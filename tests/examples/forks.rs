//! A server that forks when told to: the child must not be switched with its parent, and
//! joins for itself.
//!
//! It prints the address of each of the two, and forks once the file `fork` appears in its
//! working directory.

use runtime_core::http::{Request, Response, Running, Server};
use runtime_core::{Options, join};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

fn main() {
    let _lease = join(Options::new("forks")).expect("the lease thread starts");
    let _server = serve("parent");
    while !Path::new("fork").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: this thread holds no lock, and the child goes on with code that needs none
    // of the threads that stay behind.
    let child = unsafe { libc::fork() };
    let _child_server = (child == 0).then(|| serve("child"));
    loop {
        std::thread::sleep(Duration::from_millis(50));
        // The child ends with its parent, whom nobody but the test ends.
        if child == 0 && std::os::unix::process::parent_id() == 1 {
            return;
        }
    }
}

fn serve(who: &str) -> Running {
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let answer = |_: &Request<'_>, response: &mut Response| {
        response.write_static(b"hello");
    };
    let running = server.start(answer).expect("the event loop starts");
    println!("{who} {} {}", std::process::id(), running.address());
    let _ = std::io::stdout().flush();
    running
}
