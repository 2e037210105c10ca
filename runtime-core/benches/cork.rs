//! What a chunk costs that is written to a corked stream: many chunks up to the high-water
//! mark, then all of them to a loopback connection whose reader, on the other CPU, throws them
//! away. Node's `net-c2s-cork` does the same.
//!
//! Every peer is a peer of the bench only: a slice for each chunk and `writev`, in the plainest
//! way; all chunks copied and sent at once, in the plainest way; tokio's `write_vectored`; the
//! standard library's `BufWriter`; Node, where it is installed. All get their chunks from the
//! same place, by reference.

use anyhow::{Context, Result, ensure};
use runtime_core::buffer::Buffer;
use runtime_core::callback::run_loop_turn;
use runtime_core::stream::{Descriptor, Event, Options, Stream, end_turn};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::io::{BufWriter, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tracebyte_tests::rounds::{Figures, Limit, Row, Variant, interleave, median, pin};
use tracebyte_tests::sys::thread_cpu_ns;

const CHUNK_BYTES: [usize; 8] = [4, 8, 16, 32, 64, 128, 512, 1024];
const HIGH_WATER_MARKS: [usize; 2] = [16 * 1024, 64 * 1024];
/// Sizes by which `--threshold` shows where copying ends to be worth it.
const THRESHOLD_BYTES: [usize; 7] = [128, 256, 512, 1024, 2048, 4096, 8192];
/// Bytes written in a round.
const ROUND_BYTES: usize = 2 * 1024 * 1024;
/// Slices in one call at most.
const SLICES_MAX: usize = 1024;

/// The reader's end: it says how much has come.
#[derive(Clone, Default)]
struct Discarded(Arc<AtomicU64>);

impl Discarded {
    /// Waits until everything written has come, so that nothing of a round is left to the next.
    fn wait_for(&self, bytes: u64) {
        while self.0.load(Ordering::Acquire) < bytes {
            std::thread::yield_now();
        }
    }
}

/// A loopback connection to a thread that discards.
fn connect(reader_cpu: usize) -> Result<(TcpStream, Discarded)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    ours.set_nodelay(true)?;
    Ok((ours, discard(listener.accept()?.0, reader_cpu)))
}

/// Reads on a thread of its own until the end.
fn discard(mut from: TcpStream, reader_cpu: usize) -> Discarded {
    let discarded = Discarded::default();
    let count = discarded.clone();
    std::thread::spawn(move || {
        pin(reader_cpu).expect("the CPU is there");
        let mut room = vec![0; 256 * 1024];
        while let Ok(read @ 1..) = from.read(&mut room) {
            count.0.fetch_add(read as u64, Ordering::Release);
        }
    });
    discarded
}

/// Writes chunks until the mark is reached, and sees to it that the kernel has them all.
trait Corked {
    fn flush(&mut self, chunk: &Buffer, count: usize) -> Result<()>;
}

struct Ours {
    stream: Stream,
    drained: Rc<Cell<bool>>,
    poll: mio::Poll,
    events: mio::Events,
}

impl Ours {
    fn new(socket: TcpStream, high_water_mark: usize) -> Result<Self> {
        let poll = mio::Poll::new()?;
        let io = Descriptor::new(socket)?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&io);
        poll.registry().register(&mut mio::unix::SourceFd(&fd), mio::Token(0), mio::Interest::WRITABLE)?;
        let stream = Stream::with_options(io, Options { high_water_mark, ..Options::default() });
        let drained = Rc::new(Cell::new(false));
        let told = drained.clone();
        stream.listen(move |_, event| told.set(told.get() || matches!(event, Event::Drain)));
        Ok(Self { stream, drained, poll, events: mio::Events::with_capacity(8) })
    }
}

impl Corked for Ours {
    fn flush(&mut self, chunk: &Buffer, _: usize) -> Result<()> {
        self.stream.cork();
        while self.stream.write(black_box(chunk)) {}
        self.stream.uncork();
        loop {
            run_loop_turn();
            end_turn();
            if self.drained.take() {
                return Ok(());
            }
            ensure!(!self.stream.is_destroyed(), "the stream failed");
            self.poll.poll(&mut self.events, None)?;
            self.stream.on_writable();
        }
    }
}

/// A slice for each chunk.
struct RawWritev(TcpStream);

impl Corked for RawWritev {
    fn flush(&mut self, chunk: &Buffer, count: usize) -> Result<()> {
        let mut slices = Vec::with_capacity(SLICES_MAX);
        for _ in 0..count {
            slices.push(IoSlice::new(black_box(chunk)));
            if slices.len() == SLICES_MAX {
                self.send(&mut slices)?;
            }
        }
        self.send(&mut slices)
    }
}

impl RawWritev {
    fn send(&mut self, slices: &mut Vec<IoSlice<'_>>) -> Result<()> {
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let sent = self.0.write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, sent);
        }
        slices.clear();
        Ok(())
    }
}

/// All chunks in one piece of memory.
struct RawCopy(TcpStream, Vec<u8>);

impl Corked for RawCopy {
    fn flush(&mut self, chunk: &Buffer, count: usize) -> Result<()> {
        let mut at = 0;
        for _ in 0..count {
            let chunk = black_box(chunk);
            self.1[at..at + chunk.len()].copy_from_slice(chunk);
            at += chunk.len();
        }
        Ok(self.0.write_all(&self.1[..at])?)
    }
}

struct Tokio(tokio::runtime::Runtime, tokio::net::TcpStream);

impl Tokio {
    fn new(socket: TcpStream) -> Result<Self> {
        socket.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let socket = runtime.block_on(async { tokio::net::TcpStream::from_std(socket) })?;
        Ok(Self(runtime, socket))
    }
}

impl Corked for Tokio {
    fn flush(&mut self, chunk: &Buffer, count: usize) -> Result<()> {
        let mut slices = Vec::with_capacity(count);
        for _ in 0..count {
            slices.push(IoSlice::new(black_box(chunk)));
        }
        let mut rest = &mut slices[..];
        self.0.block_on(async {
            while !rest.is_empty() {
                let sent = self.1.write_vectored(rest).await?;
                IoSlice::advance_slices(&mut rest, sent);
            }
            Ok(())
        })
    }
}

impl Corked for BufWriter<TcpStream> {
    fn flush(&mut self, chunk: &Buffer, count: usize) -> Result<()> {
        for _ in 0..count {
            self.write_all(black_box(chunk))?;
        }
        Ok(Write::flush(self)?)
    }
}

/// Figures of one variant: the time on the CPU, and beside it the time that passed.
struct Measured {
    cpu: Figures,
    wall: Figures,
}

fn measure(chunk_bytes: usize, high_water_mark: usize, rounds: usize, reader_cpu: usize) -> Result<Vec<Measured>> {
    let count = high_water_mark / chunk_bytes;
    let chunk = &Buffer::of(&vec![0x5a_u8; chunk_bytes]);
    let [ours, writev, copy, tokio, buffered] = [(); 5].map(|()| connect(reader_cpu));
    let (ours, writev, copy, tokio, buffered) = (ours?, writev?, copy?, tokio?, buffered?);
    let peers: [(&str, Box<dyn Corked>, Discarded); 5] = [
        ("stream", Box::new(Ours::new(ours.0, high_water_mark)?), ours.1),
        ("raw writev", Box::new(RawWritev(writev.0)), writev.1),
        ("raw copy and send", Box::new(RawCopy(copy.0, vec![0; high_water_mark])), copy.1),
        ("tokio write_vectored", Box::new(Tokio::new(tokio.0)?), tokio.1),
        ("BufWriter", Box::new(BufWriter::with_capacity(high_water_mark, buffered.0)), buffered.1),
    ];
    let walls: [RefCell<Vec<f64>>; 5] = Default::default();
    let failed = RefCell::new(None);
    let mut work: Vec<_> = peers
        .into_iter()
        .zip(&walls)
        .map(|((name, mut peer, discarded), wall)| {
            let (failed, mut sent) = (&failed, 0);
            let round = move || {
                let flushes = ROUND_BYTES / high_water_mark;
                let chunks = (flushes * count) as f64;
                let (start, cpu_start) = (Instant::now(), thread_cpu_ns());
                for _ in 0..flushes {
                    if let Err(error) = peer.flush(chunk, count) {
                        failed.borrow_mut().get_or_insert(error);
                        return f64::NAN;
                    }
                }
                let cpu = (thread_cpu_ns() - cpu_start) as f64 / chunks;
                wall.borrow_mut().push(start.elapsed().as_nanos() as f64 / chunks);
                sent += ROUND_BYTES as u64;
                discarded.wait_for(sent);
                cpu
            };
            (name, round)
        })
        .collect();
    let mut variants: Vec<Variant<'_>> =
        work.iter_mut().map(|(name, round)| (*name, round as &mut dyn FnMut() -> f64)).collect();
    let figures = interleave(rounds, &mut variants);
    drop(work);
    if let Some(error) = failed.take() {
        return Err(error);
    }
    let measured = figures.into_iter().zip(walls).map(|(cpu, wall)| {
        // The round that warmed up is in there too.
        let wall = Figures { variant: cpu.variant.clone(), rounds: wall.into_inner().split_off(1) };
        Measured { cpu, wall }
    });
    Ok(measured.collect())
}

/// Node's own way, in a process of its own; one line of figures.
const NODE: &str = r"
const [port, length, mark, rounds, bytes] = process.argv.slice(1).map(Number);
const socket = new (require('net').Socket)({ writableHighWaterMark: mark });
const chunk = Buffer.alloc(length, 'x');
const chunks = bytes / length;
const figures = [];
let left, wall, cpu;
function begin() { left = chunks; wall = process.hrtime.bigint(); cpu = process.cpuUsage(); }
function send() {
  socket.cork();
  do left--; while (socket.write(chunk));
  socket.uncork();
}
socket.on('drain', () => {
  if (left <= 0) {
    const used = process.cpuUsage(cpu);
    figures.push([(used.user + used.system) * 1e3 / chunks, Number(process.hrtime.bigint() - wall) / chunks]);
    if (figures.length > rounds) {
      console.log(figures.slice(1).map((pair) => pair.join(' ')).join('\n'));
      return process.exit();
    }
    begin();
  }
  send();
});
socket.connect(port, '127.0.0.1', () => { begin(); send(); });
";

/// Node, where there is one: not in turn with the others, which live in one process.
fn measure_node(
    chunk_bytes: usize,
    high_water_mark: usize,
    rounds: usize,
    reader_cpu: usize,
) -> Result<Option<Measured>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let numbers = [listener.local_addr()?.port().into(), chunk_bytes, high_water_mark, rounds, ROUND_BYTES];
    let spawned = Command::new("node")
        .args(["-e", NODE, "--"])
        .args(numbers.map(|number: usize| number.to_string()))
        .stdout(Stdio::piped())
        .spawn();
    let Ok(node) = spawned else { return Ok(None) };
    discard(listener.accept()?.0, reader_cpu);
    let output = node.wait_with_output()?;
    ensure!(output.status.success(), "node failed");
    let lines = String::from_utf8(output.stdout)?;
    let pairs: Vec<(f64, f64)> = lines
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)))
        .collect();
    let (cpu, wall) = pairs.into_iter().unzip();
    let figures = |rounds| Figures { variant: "node".into(), rounds };
    Ok(Some(Measured { cpu: figures(cpu), wall: figures(wall) }))
}

/// The better of two peers, round by round.
fn better(a: &Figures, b: &Figures) -> Figures {
    if a.median() < b.median() { a.clone() } else { b.clone() }
}

fn rows(chunk_bytes: usize, high_water_mark: usize, measured: &[Measured]) -> Result<Vec<Row>> {
    let [ours, writev, copy, tokio, buffered, node @ ..] = measured else { anyhow::bail!("peers and figures differ") };
    let workload = format!("c2s-cork {chunk_bytes} at {} KiB", high_water_mark / 1024);
    let mut rows = Vec::new();
    for (unit, pick) in [
        ("ns a chunk", (|measured| &measured.wall) as fn(&Measured) -> &Figures),
        ("CPU ns a chunk", |measured| &measured.cpu),
    ] {
        let row = || Row::new(&workload, pick(ours), unit);
        let raw = better(pick(writev), pick(copy));
        // Rates: the peer's time over ours.
        let rate = |peer: &Figures| peer.ratio_to(pick(ours));
        rows.push(row().against(&format!("better raw: {}", raw.variant), rate(&raw)).limit(Limit::AtLeast(0.95)));
        let writev_row = row().against("raw writev", rate(pick(writev)));
        rows.push(if chunk_bytes == 4 { writev_row.limit(Limit::AtLeast(4.0)) } else { writev_row });
        rows.push(row().against("raw copy and send", rate(pick(copy))));
        rows.push(row().against("tokio write_vectored", rate(pick(tokio))));
        rows.push(row().against("BufWriter", rate(pick(buffered))).limit(Limit::AtLeast(1.0)));
        let peers = [writev, copy, tokio, buffered].into_iter().chain(node);
        rows.extend(peers.map(|peer| Row::new(&workload, pick(peer), unit)));
    }
    if chunk_bytes <= 8 {
        rows.push(Row::new(&workload, &ours.cpu, "CPU ns a chunk").limit(Limit::AtMost(8.0)));
    }
    Ok(rows)
}

fn main() -> Result<()> {
    let flag = |name: &str| std::env::args().any(|arg| arg == name);
    let (json, rounds) = (flag("--json"), if flag("--quick") { 11 } else { 41 });
    let sizes = if flag("--threshold") { &THRESHOLD_BYTES[..] } else { &CHUNK_BYTES };
    let cpus = std::thread::available_parallelism()?.get();
    pin(0).context("cannot pin the writer")?;
    for high_water_mark in HIGH_WATER_MARKS {
        for &chunk_bytes in sizes {
            let mut measured = measure(chunk_bytes, high_water_mark, rounds, cpus - 1)?;
            measured.extend(measure_node(chunk_bytes, high_water_mark, rounds, cpus - 1)?);
            if json {
                for row in rows(chunk_bytes, high_water_mark, &measured)? {
                    println!("{}", row.json());
                }
                continue;
            }
            for Measured { cpu, wall } in &measured {
                println!(
                    "{:>3} KiB {chunk_bytes:>5} {:<22} {:>8.2} CPU ns {:>8.2} ns; rate to stream {:.3} CPU {:.3}",
                    high_water_mark / 1024,
                    cpu.variant,
                    cpu.median(),
                    wall.median(),
                    measured[0].cpu.ratio_to(cpu),
                    median(&measured[0].wall.rounds) / wall.median(),
                );
            }
        }
    }
    Ok(())
}
