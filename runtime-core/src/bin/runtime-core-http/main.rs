//! The demo server: the work of Node's `http/simple` benchmark, on the runtime core.

mod args;
mod routes;

use args::{Args, Asked};
use runtime_core::http::Server;
use runtime_core::{Options, StopSignals};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Asked::Serve(args)) => args,
        Ok(Asked::Text(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("runtime-core-http: {message}\n  remedy: see `runtime-core-http --help`");
            return ExitCode::from(2);
        }
    };
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("runtime-core-http: {message}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: Args) -> Result<(), String> {
    // Before any thread starts, so that none of them takes the signal.
    let signals = StopSignals::block();
    let server = Server::bind(args.listen).map_err(|error| cannot_listen(&args, &error))?;
    let mut options = Options::new(args.service);
    if let Some(dir) = args.run_dir {
        options = options.run_dir(dir);
    }
    let lease = runtime_core::join(options).map_err(|error| error.to_string())?;
    let routes = routes::Routes::new();
    let running = server
        .threads(args.threads)
        .start(move |request, response| routes.answer(request, response))
        .map_err(|error| format!("cannot start the event loops: {error}"))?;
    println!("listening on http://{}", running.address());
    // A reader that has gone away again is no reason not to serve.
    let _ = std::io::stdout().flush();
    signals.wait().map_err(|error| format!("cannot wait for a signal: {error}"))?;
    let stopped = running.stop();
    lease.leave();
    stopped.map_err(|error| format!("an event loop ended early: {error}"))
}

fn cannot_listen(args: &Args, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::AddrInUse => "\n  remedy: stop what listens there, or choose another port with --listen",
        std::io::ErrorKind::PermissionDenied => "\n  remedy: choose a port from 1024 up with --listen",
        _ => "",
    };
    format!("cannot listen on {}: {error}{remedy}", args.listen)
}
