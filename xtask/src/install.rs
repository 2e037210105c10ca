//! `cargo xtask install` and `uninstall`: the binary, the systemd unit, an example
//! configuration, man pages and completions.
//!
//! A manifest remembers every file and directory that was made, so that `uninstall` removes
//! exactly these. A configuration that somebody changed is theirs: it is neither
//! overwritten nor removed.

use crate::run::{cargo, root, run};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Put everything below this directory [default: /usr/local, and /etc for unit and configuration]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Stage the files below this directory, for packages
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
}

/// Where things go on the machine that runs them.
struct Layout {
    bin: PathBuf,
    units: PathBuf,
    config: PathBuf,
    share: PathBuf,
    destdir: PathBuf,
}

/// What an installation made, in the paths of the machine that runs it.
#[derive(Default, Serialize, Deserialize)]
struct Manifest {
    /// Each file, with the hash of what was written.
    files: BTreeMap<PathBuf, String>,
    /// Directories that were not there before.
    directories: BTreeSet<PathBuf>,
}

/// Installs.
pub fn install(args: &Args) -> Result<()> {
    let layout = Layout::new(args)?;
    run(cargo().args(["build", "--release", "--package", "tracebyte", "--bin", "tracebyte"]))?;
    let old = layout.read_manifest()?;
    let mut new = Manifest { directories: old.directories.clone(), ..Manifest::default() };
    for (path, bytes, mode) in layout.files()? {
        let staged = layout.staged(&path);
        if path == layout.config_file() && staged.exists() {
            println!("kept       {}", staged.display());
            // Still ours to remove, if it is as we wrote it.
            new.files.extend(old.files.get(&path).map(|hash| (path.clone(), hash.clone())));
            continue;
        }
        layout.make_directories(&path, &mut new)?;
        put(&staged, &bytes, mode)?;
        println!("installed  {}", staged.display());
        new.files.insert(path, hash(&bytes));
    }
    let gone = old.files.iter().filter(|(path, _)| !new.files.contains_key(*path));
    for (path, hash) in gone {
        layout.remove(path, hash)?;
    }
    layout.make_directories(&layout.manifest_file(), &mut new)?;
    put(&layout.staged(&layout.manifest_file()), &serde_json::to_vec_pretty(&new)?, 0o644)?;
    if args.destdir.is_none() && args.prefix.is_none() {
        println!("next: systemctl daemon-reload && systemctl enable --now tracebyte");
    }
    Ok(())
}

/// Removes.
pub fn uninstall(args: &Args) -> Result<()> {
    let layout = Layout::new(args)?;
    let manifest = layout.read_manifest()?;
    if manifest.files.is_empty() {
        println!("nothing is installed there");
        return Ok(());
    }
    for (path, hash) in &manifest.files {
        layout.remove(path, hash)?;
    }
    fs::remove_file(layout.staged(&layout.manifest_file()))?;
    // Deepest first; what somebody else put something into stays.
    for directory in manifest.directories.iter().rev() {
        let _ = fs::remove_dir(layout.staged(directory));
    }
    Ok(())
}

impl Layout {
    fn new(args: &Args) -> Result<Self> {
        let absolute = |path: &PathBuf| std::path::absolute(path).context("no such directory");
        let destdir = args.destdir.as_ref().map(absolute).transpose()?.unwrap_or_default();
        let prefix = args.prefix.as_ref().map(absolute).transpose()?.filter(|prefix| prefix != Path::new("/"));
        let layout = match prefix {
            Some(prefix) => Self {
                bin: prefix.join("bin"),
                units: prefix.join("lib/systemd/system"),
                config: prefix.join("etc/tracebyte"),
                share: prefix.join("share"),
                destdir,
            },
            None => Self {
                bin: "/usr/local/bin".into(),
                units: "/etc/systemd/system".into(),
                config: "/etc/tracebyte".into(),
                share: "/usr/local/share".into(),
                destdir,
            },
        };
        if layout.bin.to_string_lossy().contains(char::is_whitespace) {
            bail!("a systemd unit cannot name {} plainly: choose a prefix without blanks", layout.bin.display());
        }
        Ok(layout)
    }

    fn config_file(&self) -> PathBuf {
        self.config.join("tracebyte.toml")
    }

    fn manifest_file(&self) -> PathBuf {
        self.share.join("tracebyte/installed.json")
    }

    /// Where a path lies while it is being packaged; itself where it is not.
    fn staged(&self, path: &Path) -> PathBuf {
        match self.destdir.as_os_str().is_empty() {
            true => path.to_owned(),
            false => self.destdir.join(path.strip_prefix("/").unwrap_or(path)),
        }
    }

    /// Every file: where, what, and its mode.
    fn files(&self) -> Result<Vec<(PathBuf, Vec<u8>, u32)>> {
        let target = tracebyte_tests::bins::target_dir();
        let built = target.join("release/tracebyte");
        let dist = root().join("agent/dist");
        let mut files = vec![
            (self.bin.join("tracebyte"), read(&built)?, 0o755),
            (self.units.join("tracebyte.service"), self.unit(&dist)?.into_bytes(), 0o644),
            (self.config_file(), read(&dist.join("tracebyte.toml"))?, 0o644),
        ];
        for (shell, place) in [
            ("bash", "bash-completion/completions/tracebyte"),
            ("zsh", "zsh/site-functions/_tracebyte"),
            ("fish", "fish/vendor_completions.d/tracebyte.fish"),
        ] {
            let output = Command::new(&built).args(["completions", shell]).output()?;
            if !output.status.success() {
                bail!("`tracebyte completions {shell}` failed: {}", output.status);
            }
            files.push((self.share.join(place), output.stdout, 0o644));
        }
        let pages = target.join("man");
        let _ = fs::remove_dir_all(&pages);
        fs::create_dir_all(&pages)?;
        run(Command::new(&built).arg("man").arg(&pages))?;
        for page in fs::read_dir(&pages)? {
            let page = page?;
            files.push((self.share.join("man/man1").join(page.file_name()), read(&page.path())?, 0o644));
        }
        Ok(files)
    }

    /// The unit, with the binary and the configuration of this layout.
    fn unit(&self, dist: &Path) -> Result<String> {
        const COMMAND: &str = "/usr/local/bin/tracebyte agent";
        let unit = fs::read_to_string(dist.join("tracebyte.service"))?;
        if !unit.contains(COMMAND) {
            bail!("agent/dist/tracebyte.service does not run `{COMMAND}`");
        }
        let mut command = format!("{}/tracebyte agent", self.bin.display());
        if self.config != Path::new("/etc/tracebyte") {
            command += &format!(" --config {}", self.config_file().display());
        }
        Ok(unit.replace(COMMAND, &command))
    }

    fn read_manifest(&self) -> Result<Manifest> {
        let file = self.staged(&self.manifest_file());
        match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Manifest::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// Makes the directories above a file and remembers which were not there.
    fn make_directories(&self, file: &Path, manifest: &mut Manifest) -> Result<()> {
        let parent = file.parent().context("a file lies in a directory")?;
        let missing = parent.ancestors().take_while(|directory| !self.staged(directory).exists());
        manifest.directories.extend(missing.map(Path::to_path_buf));
        let staged = self.staged(parent);
        fs::create_dir_all(&staged).with_context(|| format!("cannot make {}", staged.display()))
    }

    /// Removes a file that was installed; a changed configuration stays.
    fn remove(&self, path: &Path, installed: &str) -> Result<()> {
        let staged = self.staged(path);
        if path == self.config_file() && fs::read(&staged).is_ok_and(|bytes| hash(&bytes) != installed) {
            println!("kept       {} (it was changed)", staged.display());
            return Ok(());
        }
        match fs::remove_file(&staged) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", staged.display()))
            }
            _ => {
                println!("removed    {}", staged.display());
                Ok(())
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes beside the file and renames, so that a running binary can be replaced.
fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, bytes)
        .and_then(|()| fs::set_permissions(&beside, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&beside, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(prefix: Option<&str>, destdir: Option<&str>) -> Layout {
        Layout::new(&Args { prefix: prefix.map(Into::into), destdir: destdir.map(Into::into) }).unwrap()
    }

    #[test]
    fn a_prefix_takes_everything_and_the_unit_says_so() {
        let layout = layout(Some("/opt/tb"), None);
        let unit = layout.unit(&root().join("agent/dist")).unwrap();
        assert!(unit.contains("ExecStart=/opt/tb/bin/tracebyte agent --config /opt/tb/etc/tracebyte/tracebyte.toml\n"));
        for path in [&layout.bin, &layout.units, &layout.config, &layout.share] {
            assert!(path.starts_with("/opt/tb"));
        }
    }

    #[test]
    fn staging_changes_places_and_not_the_unit() {
        let layout = layout(None, Some("/tmp/stage"));
        assert_eq!(layout.staged(&layout.config_file()), Path::new("/tmp/stage/etc/tracebyte/tracebyte.toml"));
        let unit = layout.unit(&root().join("agent/dist")).unwrap();
        assert!(unit.contains("ExecStart=/usr/local/bin/tracebyte agent\n"));
    }

    #[test]
    fn what_was_made_is_removed_and_a_changed_configuration_is_not() {
        let prefix = std::env::temp_dir().join(format!("tracebyte-install-{}", std::process::id()));
        let args = Args { prefix: Some(prefix.clone()), destdir: None };
        let layout = Layout::new(&args).unwrap();
        let write = |manifest: &mut Manifest| {
            for path in [layout.config_file(), layout.bin.join("tracebyte")] {
                layout.make_directories(&path, manifest).unwrap();
                put(&path, b"as installed", 0o644).unwrap();
                manifest.files.insert(path, hash(b"as installed"));
            }
            layout.make_directories(&layout.manifest_file(), manifest).unwrap();
            put(&layout.manifest_file(), &serde_json::to_vec(manifest).unwrap(), 0o644).unwrap();
        };
        write(&mut Manifest::default());
        uninstall(&args).unwrap();
        assert!(!prefix.exists(), "all of it is gone");

        write(&mut Manifest::default());
        fs::write(layout.config_file(), "changed").unwrap();
        fs::write(layout.bin.join("another"), "").unwrap();
        uninstall(&args).unwrap();
        assert_eq!(fs::read_to_string(layout.config_file()).unwrap(), "changed");
        assert!(layout.bin.join("another").exists() && !layout.bin.join("tracebyte").exists());
        assert!(!layout.share.exists());
        fs::remove_dir_all(prefix).unwrap();
    }
}
