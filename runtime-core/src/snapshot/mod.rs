//! What a process knows, as bytes and back: its categories, and the state of what registered.
//!
//! The enable flags are never in it. They are bytes of the live page, which others write;
//! after a [`restore`] every category is looked up in the table of the process that runs, and
//! its flag is the one that is there.
//!
//! A snapshot is taken, and restored, only while the calling thread is in no callback: an
//! async context that is active belongs to an operation that would not exist afterwards.

mod format;

pub use format::VERSION;

use crate::callback::{AsyncId, execution_async_id};
use crate::trace::Category;
use format::Contents;
use runtime_core_abi::page::NAME_BYTES_MAX;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What can be part of a snapshot.
pub trait Resource: Send + Sync {
    /// Its state, as bytes that [`Resource::check`] takes.
    fn save(&self) -> Vec<u8>;

    /// Whether the bytes are a state; if not, why, in a few words. Changes nothing.
    fn check(&self, state: &[u8]) -> Result<(), String>;

    /// Takes on a state that [`Resource::check`] has taken. Indexes of categories in it are
    /// those of the process that saved it: `categories` says which they are here.
    fn load(&self, state: &[u8], categories: &Restored);
}

/// Why no snapshot was taken or restored. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A callback runs.
    #[error("async operation {0} runs in this thread: take or restore a snapshot outside of every callback")]
    InCallback(AsyncId),
    /// Not a snapshot.
    #[error("not a snapshot of a runtime-core process")]
    Magic,
    /// Another layout.
    #[error("the snapshot's version is {0}, expected {VERSION}: take it again with this version")]
    Version(u32),
    /// Cut, or with more behind it.
    #[error("the snapshot has {found} bytes, expected {expected}")]
    Length {
        /// Bytes there are.
        found: u64,
        /// Bytes its head tells of.
        expected: u64,
    },
    /// Changed since it was taken.
    #[error("the snapshot is damaged: its checksum is not that of its contents")]
    Checksum,
    /// The checksum is right and the contents are not.
    #[error("the snapshot is malformed: {0}")]
    Malformed(&'static str),
    /// Nobody here could take on the state.
    #[error("the snapshot has the state of `{0}`, which is not registered in this process")]
    Unknown(String),
    /// A resource does not take its state.
    #[error("`{name}` does not take its state from the snapshot: {reason}")]
    Refused {
        /// The resource.
        name: String,
        /// Why.
        reason: String,
    },
}

/// Why a resource was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// There is one of that name.
    #[error("a resource named `{0}` is registered already")]
    Taken(String),
    /// No name.
    #[error("a resource's name has 1 to {NAME_BYTES_MAX} bytes, not {0}")]
    Name(usize),
}

static RESOURCES: Mutex<BTreeMap<String, Arc<dyn Resource>>> = Mutex::new(BTreeMap::new());

fn resources() -> MutexGuard<'static, BTreeMap<String, Arc<dyn Resource>>> {
    RESOURCES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a resource part of every snapshot, until the returned value is dropped.
pub fn register(name: &str, resource: Arc<dyn Resource>) -> Result<Registered, RegisterError> {
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Err(RegisterError::Name(name.len()));
    }
    match resources().entry(name.to_owned()) {
        Entry::Occupied(_) => Err(RegisterError::Taken(name.to_owned())),
        Entry::Vacant(free) => {
            free.insert(resource);
            Ok(Registered(name.to_owned()))
        }
    }
}

/// Keeps a resource registered.
#[derive(Debug)]
#[must_use = "dropping it takes the resource out of later snapshots"]
pub struct Registered(String);

impl Drop for Registered {
    fn drop(&mut self) {
        let resource = resources().remove(&self.0);
        // Outside of the lock: its destructor may register another.
        drop(resource);
    }
}

fn outside_of_callbacks() -> Result<(), SnapshotError> {
    match execution_async_id() {
        AsyncId::NONE => Ok(()),
        running => Err(SnapshotError::InCallback(running)),
    }
}

/// Takes a snapshot.
pub fn take() -> Result<Vec<u8>, SnapshotError> {
    outside_of_callbacks()?;
    // A copy, so that a resource may use the registry while it is saved.
    let registered = resources().clone();
    let states: Vec<_> = registered.iter().map(|(name, resource)| (name.as_str(), resource.save())).collect();
    Ok(format::encode(&Contents {
        categories: Category::all().filter_map(Category::name).collect(),
        resources: states.iter().map(|(name, state)| (*name, &state[..])).collect(),
    }))
}

/// Brings back what a snapshot holds: adds the categories that are missing, and gives each
/// resource in it its state. All of it or nothing. Resources that are registered and not in
/// the snapshot stay as they are.
pub fn restore(snapshot: &[u8]) -> Result<Restored, SnapshotError> {
    outside_of_callbacks()?;
    let contents = format::decode(snapshot)?;
    let registered = resources().clone();
    let mut states = Vec::new();
    for (name, state) in &contents.resources {
        let resource = registered.get(*name).ok_or_else(|| SnapshotError::Unknown((*name).to_owned()))?;
        let refused = |reason| SnapshotError::Refused { name: (*name).to_owned(), reason };
        resource.check(state).map_err(refused)?;
        states.push((resource, state));
    }
    let restored = Restored { categories: contents.categories.iter().map(|name| Category::named(name)).collect() };
    for (resource, state) in states {
        resource.load(state, &restored);
    }
    Ok(restored)
}

/// The categories of a snapshot in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    categories: Vec<Category>,
}

impl Restored {
    /// The category that had this index where the snapshot was taken. One for which there is
    /// no room here shares the slot that is never on.
    pub fn category(&self, index: usize) -> Option<Category> {
        self.categories.get(index).copied()
    }

    /// All of them, in the order they had.
    pub fn categories(&self) -> &[Category] {
        &self.categories
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callback::{AsyncResource, make_callback};
    use crate::page::{PAGE, tests_alone};
    use runtime_core_abi::page::Owner;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A category by its index, as a resource would keep it.
    struct Kept(AtomicUsize);

    impl Resource for Kept {
        fn save(&self) -> Vec<u8> {
            vec![self.0.load(Ordering::Relaxed) as u8]
        }

        fn check(&self, state: &[u8]) -> Result<(), String> {
            if state.len() == 1 { Ok(()) } else { Err(format!("it has {} bytes, expected 1", state.len())) }
        }

        fn load(&self, state: &[u8], categories: &Restored) {
            self.0.store(categories.category(state[0].into()).unwrap().index(), Ordering::Relaxed);
        }
    }

    #[test]
    fn categories_and_resources_come_back_and_flags_are_the_live_ones() {
        let _alone = tests_alone();
        let category = Category::named("snapshot.kept");
        let kept = Arc::new(Kept(AtomicUsize::new(category.index())));
        let _registered = register("kept", kept.clone()).unwrap();
        category.set_enabled(true);
        let bytes = take().unwrap();
        category.set_enabled(false);
        PAGE.enable_byte(category.index(), Owner::Operator).store(1, Ordering::Relaxed);
        kept.0.store(usize::MAX, Ordering::Relaxed);
        let restored = restore(&bytes).unwrap();
        assert_eq!(kept.0.load(Ordering::Relaxed), category.index());
        assert_eq!(restored.categories()[0], Category::NODE_HTTP);
        assert_eq!(PAGE.enable_bytes(category.index()), [0, 1, 0, 0], "no flag was in it");
        PAGE.enable_byte(category.index(), Owner::Operator).store(0, Ordering::Relaxed);
        assert_eq!(take().unwrap(), bytes);
    }

    #[test]
    fn categories_of_another_process_are_found_by_name() {
        let _alone = tests_alone();
        let theirs = Contents { categories: vec!["snapshot.foreign", "node.http"], resources: vec![] };
        let restored = restore(&format::encode(&theirs)).unwrap();
        assert_eq!(restored.category(0).unwrap().name(), Some("snapshot.foreign"));
        assert_eq!(restored.category(1), Some(Category::NODE_HTTP));
        assert_eq!(restored.category(2), None);
    }

    #[test]
    fn all_or_nothing() {
        let _alone = tests_alone();
        let kept = Arc::new(Kept(AtomicUsize::new(77)));
        let _registered = register("a", kept.clone()).unwrap();
        assert_eq!(register("a", kept.clone()).unwrap_err(), RegisterError::Taken("a".into()));
        assert_eq!(register("", kept.clone()).unwrap_err(), RegisterError::Name(0));
        let with = |resources| format::encode(&Contents { categories: vec!["snapshot.never"], resources });
        let unknown = restore(&with(vec![("a", &[0][..]), ("b", b"")])).unwrap_err();
        assert_eq!(unknown.to_string(), "the snapshot has the state of `b`, which is not registered in this process");
        let refused = restore(&with(vec![("a", b"xy")])).unwrap_err().to_string();
        assert_eq!(refused, "`a` does not take its state from the snapshot: it has 2 bytes, expected 1");
        assert_eq!(kept.0.load(Ordering::Relaxed), 77);
        assert!(Category::all().all(|category| category.name() != Some("snapshot.never")));
    }

    #[test]
    fn refused_inside_of_a_callback() {
        let _alone = tests_alone();
        let bytes = take().unwrap();
        let operation = AsyncResource::new("SNAPSHOT");
        make_callback(&operation, || {
            let id = operation.async_id();
            assert!(matches!(take(), Err(SnapshotError::InCallback(running)) if running == id));
            assert!(matches!(restore(&bytes), Err(SnapshotError::InCallback(running)) if running == id));
        })
        .unwrap();
        restore(&bytes).unwrap();
    }
}
