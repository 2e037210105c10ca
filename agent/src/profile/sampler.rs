//! The sampler in the kernel: loaded, attached to every CPU, read, and gone when dropped.
//!
//! Needs Linux 5.8 (ring buffers), and no BTF of the kernel.

use super::Spec;
use super::refusal;
use super::session::READ_INTERVAL;
use crate::error::Failure;
use crate::sys;
use aya::maps::{HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::perf_event::{
    HardwareEvent, PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::{PerfEvent, ProgramError};
use aya::{Ebpf, EbpfLoader};
use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};
use tracebyte_ebpf_common::sampler::{
    CONFIG, CONFIG_FILTER, CONFIG_KERNEL, CONFIG_USER, COUNTERS, Counters, PIDS, PROGRAM, RECORD_BYTES_MAX, RING,
};

/// The object with every kernel program, aligned as the loader wants it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../ebpf/prebuilt/tracebyte.bpf.o");

/// Making a loader parses the kernel's BTF, whether it is wanted or not: tens of
/// milliseconds, so one is made ahead and serves every session.
static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    Mutex::new(loader)
});

/// Every value of the global [`CONFIG`]: a loader that outlives a session borrows it.
static CONFIGS: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const _: () = assert!(CONFIG_FILTER | CONFIG_KERNEL | CONFIG_USER == 7);

/// The most samples a second and CPU. A sample costs the CPU about ten microseconds: ten
/// times this frequency leaves a machine no time for anything else, the session's end included.
const FREQ_HZ_MAX: u32 = 10_000;

/// The smallest and the largest ring in bytes.
const RING_BYTES: (u64, u64) = (256 * 1024, 16 * 1024 * 1024);

/// Does ahead what the first session would wait for.
pub(super) fn prepare() {
    LazyLock::force(&LOADER);
    aya::features();
}

/// A sampler that runs.
pub(super) struct Sampler {
    bpf: Ebpf,
    ring: RingBuf<MapData>,
    ring_bytes: u32,
    event: Event,
    freq_hz: u32,
    /// CPUs with an event of ours.
    cpus: BTreeSet<u32>,
    links: Vec<PerfEventLinkId>,
    notes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Cycles,
    CpuClock,
}

impl Event {
    fn config(self) -> PerfEventConfig {
        match self {
            Self::Cycles => PerfEventConfig::Hardware(HardwareEvent::CpuCycles),
            Self::CpuClock => PerfEventConfig::Software(SoftwareEvent::CpuClock),
        }
    }
}

impl Sampler {
    /// Loads and attaches; samples are taken when it returns.
    pub(super) fn start(spec: &Spec) -> Result<Self, Failure> {
        refusal::in_pid_namespace()?;
        let mut notes = Vec::new();
        let freq_hz = clamp_frequency(spec.freq_hz, &mut notes);
        let cpus = online_cpus()?;
        let ring_bytes = ring_bytes(freq_hz, cpus.len());
        let mut bpf = load(spec, ring_bytes)?;
        let ring = bpf.take_map(RING).ok_or_else(|| missing(RING))?;
        let ring = RingBuf::try_from(ring).map_err(|error| refusal::of_load(&error))?;
        let mut sampler = Self {
            bpf,
            ring,
            ring_bytes,
            event: Event::Cycles,
            freq_hz,
            cpus: BTreeSet::new(),
            links: Vec::new(),
            notes,
        };
        sampler.attach_all(&cpus)?;
        Ok(sampler)
    }

    /// Attaches to each CPU, with cycles where the first takes them, else with the clock.
    fn attach_all(&mut self, cpus: &[u32]) -> Result<(), Failure> {
        for &cpu in cpus {
            let mut attached = self.attach(cpu);
            let no_cycles = [libc::ENOENT, libc::EOPNOTSUPP, libc::ENODEV, libc::EINVAL, libc::EBUSY];
            let unavailable =
                attached.as_ref().err().and_then(refusal::errno).is_some_and(|no| no_cycles.contains(&no));
            if self.event == Event::Cycles && self.links.is_empty() && unavailable {
                self.event = Event::CpuClock;
                attached = self.attach(cpu);
            }
            match attached {
                Ok(()) => {}
                // It went offline between the list and here.
                Err(error) if refusal::errno(&error) == Some(libc::ENODEV) => {}
                Err(error) => return Err(refusal::of_attach(&error, cpu)),
            }
        }
        match self.links.is_empty() {
            true => Err(Failure::new("cannot sample: no CPU took a perf event")),
            false => Ok(()),
        }
    }

    fn attach(&mut self, cpu: u32) -> Result<(), ProgramError> {
        let program: &mut PerfEvent = match self.bpf.program_mut(PROGRAM) {
            Some(program) => program.try_into()?,
            None => return Err(ProgramError::NotLoaded),
        };
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        let link = program.attach(self.event.config(), scope, SamplePolicy::Frequency(self.freq_hz.into()), false)?;
        self.links.push(link);
        self.cpus.insert(cpu);
        Ok(())
    }

    /// Attaches to CPUs that have come online; an event of a CPU that went offline is dead,
    /// so one that comes back gets another.
    pub(super) fn follow_cpus(&mut self) {
        let Ok(online) = online_cpus() else { return };
        self.cpus.retain(|cpu| online.contains(cpu));
        for cpu in online {
            if !self.cpus.contains(&cpu)
                && let Err(error) = self.attach(cpu)
            {
                let note = format!("CPU {cpu} came online and could not be sampled: {error}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
        }
    }

    /// Takes every record that is in the ring, and no more than it can hold: samples that
    /// come faster than they are taken must not keep the reader here for ever.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let mut room = self.ring_bytes as usize;
        while room > 0
            && let Some(record) = self.ring.next()
        {
            room = room.saturating_sub(record.len());
            take(&record);
        }
    }

    /// Ends sampling; ring and counters stay.
    pub(super) fn detach(&mut self) {
        if let Some(Ok(program)) = self.bpf.program_mut(PROGRAM).map(TryInto::<&mut PerfEvent>::try_into) {
            for link in self.links.drain(..) {
                // A link that is gone already takes no samples either.
                let _ = program.detach(link);
            }
        }
    }

    /// The sum of every CPU's counters.
    pub(super) fn counters(&self) -> Result<Counters, Failure> {
        let map = self.bpf.map(COUNTERS).ok_or_else(|| missing(COUNTERS))?;
        let counters = PerCpuArray::<_, [u64; 3]>::try_from(map).map_err(|error| refusal::of_load(&error))?;
        let cpus = counters.get(&0, 0).map_err(|error| refusal::of_load(&error))?;
        Ok(cpus.iter().fold(Counters::default(), |sum, [samples, lost, idle]| Counters {
            samples: sum.samples + samples,
            lost: sum.lost + lost,
            idle: sum.idle + idle,
        }))
    }

    /// The event in use.
    pub(super) fn event(&self) -> &'static str {
        match self.event {
            Event::Cycles => "cycles",
            Event::CpuClock => "cpu-clock",
        }
    }

    /// Samples a second and CPU in use.
    pub(super) fn freq_hz(&self) -> u32 {
        self.freq_hz
    }

    /// What the person should know.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

fn load(spec: &Spec, ring_bytes: u32) -> Result<Ebpf, Failure> {
    if sys::kernel::before_5_11() {
        // Where it is refused the load says so, and why.
        let _ = sys::rlimit::lift_locked_memory();
    }
    let pids = spec.pids.as_deref().unwrap_or_default();
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    let config =
        bit(spec.pids.is_some(), CONFIG_FILTER) | bit(spec.kernel, CONFIG_KERNEL) | bit(spec.user, CONFIG_USER);
    let mut bpf = LOADER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .override_global(CONFIG, &CONFIGS[config as usize], true)
        .map_max_entries(RING, ring_bytes)
        .map_max_entries(PIDS, pids.len().max(1) as u32)
        .load(OBJECT)
        .map_err(|error| refusal::of_load(&error))?;
    let mut wanted = HashMap::<_, u32, u8>::try_from(bpf.map_mut(PIDS).ok_or_else(|| missing(PIDS))?)
        .map_err(|error| refusal::of_load(&error))?;
    for pid in pids {
        wanted.insert(pid, 1, 0).map_err(|error| refusal::of_load(&error))?;
    }
    let program: &mut PerfEvent = bpf
        .program_mut(PROGRAM)
        .ok_or_else(|| missing(PROGRAM))?
        .try_into()
        .map_err(|error: ProgramError| refusal::of_load(&error))?;
    program.load().map_err(|error| refusal::of_load(&error))?;
    Ok(bpf)
}

/// The frequency in use for the one asked for: the kernel refuses more than its limit, and
/// we more than ours.
fn clamp_frequency(asked_hz: u32, notes: &mut Vec<String>) -> u32 {
    let kernel_hz = sys::kernel::setting("kernel/perf_event_max_sample_rate").unwrap_or(u32::MAX);
    let (limit_hz, whose) = match kernel_hz < FREQ_HZ_MAX {
        true => (kernel_hz.max(1), "kernel.perf_event_max_sample_rate"),
        false => (FREQ_HZ_MAX, "tracebyte"),
    };
    if asked_hz > limit_hz {
        notes.push(format!("{asked_hz} Hz were asked for; {whose} allows {limit_hz}, which was used"));
    }
    asked_hz.clamp(1, limit_hz)
}

/// A ring that holds what comes in 20 reading intervals if every stack is as deep as can
/// be: a reader that is late by a second loses nothing.
fn ring_bytes(freq_hz: u32, cpus: usize) -> u32 {
    let a_second = u64::from(freq_hz) * cpus as u64 * RECORD_BYTES_MAX as u64;
    let bytes = a_second * (20 * READ_INTERVAL.as_millis() as u64) / 1000;
    bytes.clamp(RING_BYTES.0, RING_BYTES.1).next_power_of_two() as u32
}

fn online_cpus() -> Result<Vec<u32>, Failure> {
    aya::util::online_cpus().map_err(|(path, error)| Failure::new(format!("cannot read {path}: {error}")))
}

fn missing(name: &str) -> Failure {
    Failure::new(format!("this build is broken: its eBPF object has no `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_fits_the_frequency() {
        assert_eq!(ring_bytes(1, 1), 256 * 1024);
        assert_eq!(ring_bytes(999, 2), 4 * 1024 * 1024);
        assert_eq!(ring_bytes(99_999, 512), 16 * 1024 * 1024);
    }

    #[test]
    fn a_frequency_above_the_limit_is_told() {
        let mut notes = Vec::new();
        assert_eq!(clamp_frequency(0, &mut notes), 1);
        assert_eq!(notes.len(), 0);
        assert!(clamp_frequency(u32::MAX, &mut notes) <= FREQ_HZ_MAX);
        assert!(notes[0].contains("were asked for"), "{notes:?}");
    }
}
