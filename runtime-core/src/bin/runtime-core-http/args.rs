//! The command line, parsed by hand: the runtime core brings no parser along.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

const HELP: &str = "\
A small HTTP server on the runtime core, whose tracing a tracebyte agent can switch

Usage: runtime-core-http [--listen ADDR:PORT] [--service NAME] [--threads N] [--run-dir DIR]

Options:
  --listen ADDR:PORT  where to listen; port 0 takes a free one [default: 127.0.0.1:8080]
  --service NAME      the name that the agent shows [default: runtime-core-http]
  --threads N         event loops, 1 to 64 [default: 1]
  --run-dir DIR       the agent's run directory [env: TRACEBYTE_RUN_DIR] [default: /run/tracebyte]
  --help              print this
  --version           print the version

Routes:
  /                                       a greeting
  /{bytes|buffer}/{len}/{chunks}/{chunkedEnc}
                                          `len` bytes in `chunks` pieces, with their length
                                          ahead (chunkedEnc 0) or in chunks (1);
                                          the last two may be left out

RUNTIME_CORE_AGENT=off: do not look for an agent.

Example: runtime-core-http --listen 127.0.0.1:8080 --service shop
";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// A server.
    Serve(Args),
    /// A text to print.
    Text(String),
}

/// How to serve.
#[derive(Debug, PartialEq, Eq)]
pub struct Args {
    pub listen: SocketAddr,
    pub service: String,
    pub threads: usize,
    pub run_dir: Option<PathBuf>,
}

/// Reads the arguments behind the program's name; an error says what is wrong with which.
pub fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Asked, String> {
    let mut args = Args {
        listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
        service: "runtime-core-http".into(),
        threads: 1,
        run_dir: None,
    };
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        let (flag, inline) = match text.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(OsString::from(value))),
            None => (text, None),
        };
        match flag.as_str() {
            "--help" | "-h" => return Ok(Asked::Text(HELP.into())),
            "--version" | "-V" => return Ok(Asked::Text(format!("runtime-core-http {}\n", env!("CARGO_PKG_VERSION")))),
            "--listen" | "--service" | "--threads" | "--run-dir" => {}
            _ => return Err(format!("unknown argument `{flag}`")),
        }
        let value = inline.or_else(|| arguments.next()).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| format!("`{flag}` needs a value"))?;
        let text = value.to_string_lossy();
        match flag.as_str() {
            "--listen" => {
                args.listen = text.parse().map_err(|_| format!("`--listen {text}` is not an address and a port"))?;
            }
            "--threads" => {
                let threads = text.parse().ok().filter(|threads| (1..=64).contains(threads));
                args.threads = threads.ok_or_else(|| format!("`--threads {text}` is not a number from 1 to 64"))?;
            }
            "--service" => args.service = text.into_owned(),
            _ => args.run_dir = Some(value.into()),
        }
    }
    Ok(Asked::Serve(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let Ok(Asked::Serve(args)) = asked("") else { panic!("serves") };
        assert_eq!((args.listen.to_string(), args.threads, args.run_dir), ("127.0.0.1:8080".into(), 1, None));
        let Ok(Asked::Serve(args)) = asked("--listen [::1]:0 --service=shop --threads 2 --run-dir /tmp/x") else {
            panic!("serves")
        };
        assert_eq!((args.listen.to_string(), args.service), ("[::1]:0".into(), "shop".into()));
        assert_eq!((args.threads, args.run_dir), (2, Some("/tmp/x".into())));
    }

    #[test]
    fn errors_name_the_argument() {
        for (line, named) in [
            ("--port 1", "--port"),
            ("x", "`x`"),
            ("--listen", "--listen"),
            ("--listen localhost", "localhost"),
            ("--threads 0", "--threads 0"),
            ("--service=", "--service"),
        ] {
            assert!(asked(line).unwrap_err().contains(named), "{line}");
        }
    }

    #[test]
    fn help_names_every_option() {
        let Ok(Asked::Text(help)) = asked("--threads 2 --help") else { panic!("a text") };
        for option in ["--listen", "--service", "--threads", "--run-dir", "--help", "--version", "Example"] {
            assert!(help.contains(option), "{option}");
        }
    }
}
