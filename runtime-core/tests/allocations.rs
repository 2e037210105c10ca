//! A request allocates nothing: not on account of tracing, and in the steady state not at
//! all. A binary of its own, for the counter sees every thread of the process.

mod common;

use common::{FakeAgent, TempDir};
use runtime_core::http::{Request, Response, Server};
use runtime_core::trace::Route;
use runtime_core::{Options, join};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the whole process while so many requests are served.
fn during(requests: usize, stream: &mut TcpStream) -> u64 {
    let mut buffer = [0; 4096];
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..requests {
        stream.write_all(b"GET /bytes/4?x=y HTTP/1.1\r\nHost: test\r\nAccept: */*\r\n\r\n").unwrap();
        let mut got = 0;
        while !buffer[..got].ends_with(b"CCCC") {
            got += stream.read(&mut buffer[got..]).unwrap();
        }
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn a_request_allocates_nothing() {
    let route = Route::named("/bytes/{len}");
    let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let server = server
        .start(move |_: &Request<'_>, response: &mut Response| {
            response.route(route).header("Content-Type", "text/plain").write_static(b"CCCC");
        })
        .unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    during(200, &mut stream);
    assert_eq!(during(1000, &mut stream), 0, "no agent");

    let dir = TempDir::new();
    let agent = FakeAgent::listen(dir.path());
    let lease = join(Options::new("allocations").run_dir(dir.path())).unwrap();
    let member = agent.admit();
    during(200, &mut stream);
    assert_eq!(during(1000, &mut stream), 0, "an agent, tracing off");
    member.switch(true);
    during(10, &mut stream);
    assert_eq!(during(1000, &mut stream), 0, "tracing on");
    server.stop().unwrap();
    lease.leave();
}
