//! Rebuilds the checked-in eBPF object, or verifies that it is what its sources give.
//!
//! The host build needs neither a nightly compiler nor LLVM, because the object is checked
//! in beside a manifest: the hash of its sources, the versions of the tools, its own hash.
//! The build is reproducible: every path that the compiler could write down is remapped,
//! and the object is searched for what would tell the machine it came from.
//!
//! Two toolchains serve. Debian's `rustc-web` with its library sources is what
//! `cargo xtask setup ebpf` installs. Where rustup reaches its server, a nightly does as
//! well, by the same command: `rustup toolchain install nightly --component rust-src` and
//! `cargo install bpf-linker`. Whichever built last is recorded.

use crate::run::{root, run as run_command};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The BPF target: little-endian, as is the only machine we run on.
const TARGET: &str = "bpfel-unknown-none";
/// What must not be in the object: it would tell where it was built.
const FOREIGN: [&str; 7] = ["/root", "/home", "/tmp", "/usr/", "index.crates", "registry/src", ".cargo"];

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Change nothing; fail when sources, object and manifest disagree, or when the same
    /// tools build another object.
    #[arg(long)]
    verify: bool,
}

/// Versions of what built the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Versions {
    rustc: String,
    llvm: String,
    bpf_linker: String,
}

/// `ebpf/prebuilt/manifest.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    sources_sha256: String,
    object_sha256: String,
    tools: Versions,
}

/// Rebuilds or verifies.
pub fn run(args: &Args) -> Result<()> {
    if args.verify { verify() } else { rebuild() }
}

fn rebuild() -> Result<()> {
    let tools = Tools::find()?;
    let object = build(&tools)?;
    let manifest =
        Manifest { sources_sha256: hash_sources()?, object_sha256: hash(&object), tools: tools.versions.clone() };
    std::fs::create_dir_all(prebuilt())?;
    std::fs::write(object_path(), &object)?;
    std::fs::write(manifest_path(), serde_json::to_string_pretty(&manifest)? + "\n")?;
    println!("ebpf/prebuilt/tracebyte.bpf.o: {} bytes, sha256 {}", object.len(), manifest.object_sha256);
    Ok(())
}

fn verify() -> Result<()> {
    let manifest = read_manifest()?;
    ensure!(
        hash_sources()? == manifest.sources_sha256,
        "the sources of the eBPF object have changed since it was built: run `cargo xtask ebpf` and commit the result"
    );
    let object = std::fs::read(object_path()).with_context(|| format!("cannot read {}", object_path().display()))?;
    ensure!(hash(&object) == manifest.object_sha256, "the eBPF object is not the one its manifest describes");
    refuse_foreign(&object)?;
    match Tools::find() {
        Ok(tools) if tools.versions == manifest.tools => {
            ensure!(build(&tools)? == object, "the same tools built another eBPF object from the same sources");
            println!("the eBPF object is what its sources give");
        }
        Ok(tools) => println!(
            "the eBPF object matches its manifest; not rebuilt: it was built by {:?}, here are {:?}",
            manifest.tools, tools.versions
        ),
        Err(_) => println!("the eBPF object matches its manifest; not rebuilt: its tools are not here"),
    }
    Ok(())
}

/// A compiler with its library sources, and the linker.
struct Tools {
    rustc: PathBuf,
    cargo: PathBuf,
    sysroot: PathBuf,
    versions: Versions,
}

impl Tools {
    /// Debian's toolchain where it is installed, else rustup's nightly.
    fn find() -> Result<Self> {
        let debian = Some((PathBuf::from("/usr/bin/rustc"), PathBuf::from("/usr/bin/cargo")));
        let nightly = || Some((rustup_which("rustc")?, rustup_which("cargo")?));
        let found = debian.and_then(Self::of).or_else(|| nightly().and_then(Self::of));
        found.context(
            "no toolchain for eBPF found (a rustc with its library sources, and bpf-linker): run `cargo xtask setup ebpf`",
        )
    }

    /// The pair, where both work, their library sources are there, and so is the linker.
    fn of((rustc, cargo): (PathBuf, PathBuf)) -> Option<Self> {
        let verbose = output(clean(&rustc).arg("-vV"))?;
        let field = |name: &str| verbose.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let sysroot = PathBuf::from(output(clean(&rustc).args(["--print", "sysroot"]))?.trim());
        let linker = output(clean(Path::new("bpf-linker")).arg("--version"))?;
        let versions = Versions {
            rustc: verbose.lines().next()?.to_owned(),
            llvm: field("LLVM version: ")?,
            bpf_linker: linker.trim().trim_start_matches("bpf-linker ").to_owned(),
        };
        let usable = cargo.exists() && library_sources(&sysroot).join("library/core/Cargo.toml").exists();
        usable.then_some(Self { rustc, cargo, sysroot, versions })
    }
}

fn rustup_which(tool: &str) -> Option<PathBuf> {
    let path = output(Command::new("rustup").args(["which", "--toolchain", "nightly", tool]))?;
    Some(PathBuf::from(path.trim()))
}

fn library_sources(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust")
}

/// Builds the probes and gives the object's bytes.
fn build(tools: &Tools) -> Result<Vec<u8>> {
    let (target_dir, probes) = (root().join("target/ebpf"), root().join("ebpf/probes"));
    // Fetched first: the folder of the crates' sources must be there to be remapped.
    run_command(clean(&tools.cargo).current_dir(&probes).args(["fetch", "--quiet", "--locked"]))?;
    run_command(
        clean(&tools.cargo)
            .current_dir(&probes)
            .args(["build", "--quiet", "--release", "--locked", "--target", TARGET, "-Z", "build-std=core"])
            .arg("--target-dir")
            .arg(&target_dir)
            .env("RUSTC", &tools.rustc)
            // The BPF target and `build-std` are not stable; a stable compiler takes them so.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", remapped_prefixes(tools)?.join("\x1f")),
    )?;
    let object = std::fs::read(target_dir.join(TARGET).join("release/tracebyte"))?;
    refuse_foreign(&object)?;
    Ok(object)
}

/// Compiler flags that rename every folder of this machine that a source may lie in.
fn remapped_prefixes(tools: &Tools) -> Result<Vec<String>> {
    let library = library_sources(&tools.sysroot);
    let mut prefixes = vec![(root(), "tracebyte"), (library.clone(), "rust")];
    if let Ok(real) = library.canonicalize() {
        prefixes.push((real, "rust"));
    }
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    if let Ok(registries) = std::fs::read_dir(home.join("registry/src")) {
        prefixes.extend(registries.flatten().map(|registry| (registry.path(), "crates")));
    }
    Ok(prefixes.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect())
}

/// A command without what the cargo that runs us left in the environment for its own tools.
fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        let ours = name_text.starts_with("CARGO") && name_text != "CARGO_HOME" || name_text.starts_with("RUST");
        if ours && name_text != "RUSTUP_HOME" || name_text == "LD_LIBRARY_PATH" {
            command.env_remove(&name);
        }
    }
    command
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// Hashes path and content of every source of the object, in the order of their paths.
fn hash_sources() -> Result<String> {
    let mut files = vec![root().join("ebpf/probes/Cargo.toml"), root().join("ebpf/probes/Cargo.lock")];
    for folder in ["ebpf/common/src", "ebpf/probes/src"] {
        collect_files(&root().join(folder), &mut files)?;
    }
    let mut named: Vec<_> =
        files.into_iter().map(|file| (file.strip_prefix(root()).expect("ours").to_owned(), file)).collect();
    named.sort();
    let mut hasher = Sha256::new();
    for (name, file) in named {
        let content = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        // Lengths first, so that no two sets of files give the same bytes.
        for part in [name.as_os_str().as_encoded_bytes(), &content] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    Ok(hex(&hasher.finalize()))
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Fails where the object holds a string that tells of the machine that built it.
fn refuse_foreign(object: &[u8]) -> Result<()> {
    for text in object.split(|byte| !(b' '..=b'~').contains(byte)) {
        let text = String::from_utf8_lossy(text);
        if let Some(foreign) = FOREIGN.iter().find(|foreign| text.contains(*foreign)) {
            bail!("the eBPF object holds `{text}`, and `{foreign}` tells where it was built");
        }
    }
    Ok(())
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_manifest() -> Result<Manifest> {
    let path = manifest_path();
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))
}

fn prebuilt() -> PathBuf {
    root().join("ebpf/prebuilt")
}

fn object_path() -> PathBuf {
    prebuilt().join("tracebyte.bpf.o")
}

fn manifest_path() -> PathBuf {
    prebuilt().join("manifest.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_is_the_one_of_these_sources() {
        let manifest = read_manifest().unwrap();
        assert_eq!(manifest.sources_sha256, hash_sources().unwrap(), "run `cargo xtask ebpf`");
        assert_eq!(manifest.object_sha256, hash(&std::fs::read(object_path()).unwrap()));
    }

    #[test]
    fn the_object_does_not_tell_where_it_was_built() {
        refuse_foreign(&std::fs::read(object_path()).unwrap()).unwrap();
        refuse_foreign(b"\0x/home/someone/y\0").unwrap_err();
    }
}
