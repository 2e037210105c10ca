//! The same scenarios on Node's sockets: what a program sees must be the same, in the same order.

use super::steps::{Peer, Scenario, Step};
use std::io::Write;
use std::process::{Command, Stdio};

const SCRIPT: &str = r#"
const net = require('net');
const own = (e) => (!e ? 'ok' : e.code === undefined ? 'own' : /^ERR_/.test(e.code) ? e.code : 'EIO');
function play(scenario) {
  return new Promise((done) => {
    const told = [];
    const note = (what) => told.push(what);
    let socket;
    const callback = (name, then) => (error) => { note(`${name} ${own(error)}`); run(then); };
    const run = (steps) => steps.forEach((step) => {
      if (typeof step === 'string') step = { [step]: null };
      const [kind, a] = Object.entries(step)[0];
      if (kind === 'Write') note(`write ${socket.write(Buffer.alloc(a[1], 'x'), callback(a[0], a[2]))}`);
      else if (kind === 'Text') note(`write ${socket.write(a[1], a[2], callback(a[0], []))}`);
      else if (kind === 'Quiet') note(`write ${socket.write(Buffer.alloc(a, 'x'))}`);
      else if (kind === 'Cork') socket.cork();
      else if (kind === 'Uncork') socket.uncork();
      else if (kind === 'End') socket.end(callback(a[0], a[1]));
      else if (kind === 'Destroy') socket.destroy();
      else if (kind === 'DestroyWith') socket.destroy(new Error('own'));
      else if (kind === 'Tick') process.nextTick(() => { note(a[0]); run(a[1]); });
      else if (kind === 'Written') note(`written ${socket.bytesWritten} pending ${socket.writableLength}`);
      else throw new Error(kind);
    });
    const server = net.createServer({ pauseOnConnect: true, allowHalfOpen: false }, (peer) => {
      server.close();
      peer.on('error', () => {});
      const late = { Reads: 0, ReadsLate: 100, Waits: 300, Resets: 100 }[scenario.peer];
      setTimeout(() => {
        if (scenario.peer === 'Waits') peer.destroy();
        else if (scenario.peer === 'Resets') peer.resetAndDestroy();
        else peer.resume();
      }, late + 50);
    });
    server.listen(0, '127.0.0.1', () => {
      socket = net.connect(server.address().port, '127.0.0.1', () => setTimeout(() => {
        if (scenario.peer !== 'Waits') socket.resume();
        run(scenario.steps);
        if (scenario.later.length) setTimeout(() => run(scenario.later), 10);
      }, 30));
      let first = scenario.on_drain;
      socket.on('drain', () => { note('drain'); const steps = first; first = []; run(steps); });
      socket.on('finish', () => note('finish'));
      socket.on('error', (error) => note(`error ${own(error)}`));
      socket.on('close', () => { note('close'); setTimeout(() => done(told), 20); });
    });
  });
}
const scenarios = JSON.parse(require('fs').readFileSync(0, 'utf8'));
setTimeout(() => { console.error('a scenario does not end'); process.exit(3); }, 20000).unref();
Promise.all(scenarios.map(play)).then((all) => process.stdout.write(JSON.stringify(all)));
"#;

/// Waits for the reader however much memory the sockets have.
const LARGE: usize = 24 << 20;

fn scenarios() -> Vec<Scenario> {
    use Step::{Cork, Destroy, DestroyWith, End, Quiet, Text, Tick, Uncork, Write, Written};
    let end = || End("ended", vec![]);
    let write = |name, len| Write(name, len, vec![]);
    vec![
        Scenario::new(
            "write and end",
            Peer::Reads,
            vec![write("a", 4), Tick("tick", vec![]), write("b", 0), Written, end()],
        ),
        Scenario::new(
            "corked twice",
            Peer::Reads,
            vec![
                Cork,
                Cork,
                write("a", 4),
                write("b", 2000),
                write("c", 0),
                Written,
                // What waits of these is in bytes here, in characters in Node.
                Text("d", "c3a9", "hex"),
                Text("e", "\u{e9}", "latin1"),
                Uncork,
                Tick("tick", vec![]),
                Uncork,
                Uncork,
                Written,
                end(),
            ],
        ),
        Scenario::new(
            "corked beyond the high-water mark",
            Peer::Reads,
            vec![Cork, write("a", 16383), write("b", 1), write("c", 1), Uncork, Tick("tick", vec![end()])],
        ),
        Scenario::new("end uncorks", Peer::Reads, vec![Cork, Cork, write("a", 4), end(), Written]),
        Scenario {
            on_drain: vec![write("b", 5), end()],
            ..Scenario::new("drain comes before callbacks", Peer::Reads, vec![Cork, write("a", 20_000), Uncork])
        },
        Scenario::new(
            "what is taken whole owes no drain",
            Peer::Reads,
            vec![write("a", 17_000), Tick("tick", vec![end()])],
        ),
        Scenario {
            on_drain: vec![write("c", 5), end()],
            ..Scenario::new(
                "a write that waits",
                Peer::ReadsLate,
                vec![write("a", LARGE), write("b", 5), Quiet(7), Written],
            )
        },
        Scenario::new(
            "chunks behind a write that waits are corked",
            Peer::ReadsLate,
            vec![
                Write("a", LARGE, vec![Written, Uncork, Tick("tick", vec![end()])]),
                Cork,
                write("b", 5),
                write("c", 0),
                Written,
            ],
        ),
        Scenario::new(
            "end behind a write that waits",
            Peer::ReadsLate,
            vec![write("a", LARGE), write("b", 1), end(), End("again", vec![])],
        ),
        Scenario::new("write after end", Peer::Reads, vec![write("a", 1), end(), write("b", 1), End("again", vec![])]),
        Scenario::new("end twice", Peer::Reads, vec![write("a", 1), End("first", vec![]), End("second", vec![])]),
        Scenario::new("end when finished", Peer::Reads, vec![End("first", vec![End("second", vec![])])]),
        Scenario::new(
            "destroyed while corked",
            Peer::Waits,
            vec![Cork, write("a", 1), write("b", 1), Destroy, Tick("tick", vec![]), write("c", 1), Destroy],
        ),
        Scenario::new(
            "destroyed with an error while corked",
            Peer::Waits,
            vec![Cork, write("a", 1), DestroyWith, write("b", 1), Tick("tick", vec![write("c", 1)])],
        ),
        Scenario {
            in_flight: true,
            later: vec![Destroy, Tick("tick", vec![])],
            ..Scenario::new("destroyed in the middle", Peer::Waits, vec![write("a", LARGE), write("b", 1), end()])
        },
        Scenario {
            in_flight: true,
            later: vec![DestroyWith, Tick("tick", vec![])],
            ..Scenario::new(
                "destroyed with an error in the middle",
                Peer::Waits,
                vec![write("a", LARGE), write("b", 1)],
            )
        },
        Scenario::new(
            "destroyed by a callback",
            Peer::Waits,
            vec![Cork, Write("a", 1, vec![Destroy]), write("b", 1), Uncork, write("c", 1)],
        ),
        Scenario::new(
            "callbacks write",
            Peer::Reads,
            vec![Write("a", 1, vec![write("c", 1), Tick("tick", vec![end()])]), write("b", 1)],
        ),
        Scenario {
            in_flight: true,
            ..Scenario::new("a reset while a write waits", Peer::Resets, vec![write("a", LARGE), write("b", 1), end()])
        },
    ]
}

#[test]
fn node_tells_the_same_in_the_same_order() {
    let scenarios = scenarios();
    let spawned = Command::new("node").args(["-e", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut node = match spawned {
        Ok(node) => node,
        Err(error) => tracebyte_tests::skip!("cannot start node: {error}"),
    };
    let mut input = node.stdin.take().unwrap();
    input.write_all(serde_json::to_string(&scenarios).unwrap().as_bytes()).unwrap();
    drop(input);
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "node failed");
    let theirs: Vec<Vec<String>> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(theirs.len(), scenarios.len());
    let mut differ = Vec::new();
    for (scenario, theirs) in scenarios.iter().zip(theirs) {
        let (mut ours, mut theirs) = (scenario.play(), theirs);
        if scenario.in_flight {
            // The one difference: the write that was under way is told an error here.
            assert!(ours.iter().any(|told| told.starts_with("a ") && told != "a ok"));
            ours.iter_mut().chain(&mut theirs).filter(|told| told.starts_with("a ")).for_each(|told| told.truncate(1));
        }
        if ours != theirs {
            differ.push(format!("{}:\n  ours   {ours:?}\n  theirs {theirs:?}", scenario.name));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn scenarios_end() {
    for scenario in scenarios() {
        let told = scenario.play();
        assert_eq!(told.last().map(String::as_str), Some("close"), "{}: {told:?}", scenario.name);
    }
}
