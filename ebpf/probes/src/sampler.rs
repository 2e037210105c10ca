//! Samples stacks: one compact record a sample, as long as its stacks.
//!
//! There is no stack-id map, because a collision of its hash loses the hottest stacks. A
//! record is built in scratch memory of the CPU and copied to the ring without a wake-up:
//! the reader polls. What does not fit is counted, per CPU.

use aya_ebpf::EbpfContext;
use aya_ebpf::Global;
use aya_ebpf::bindings::{BPF_F_USER_STACK, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_get_smp_processor_id, bpf_get_stack, bpf_ringbuf_output};
use aya_ebpf::macros::{map, perf_event};
use aya_ebpf::maps::{HashMap, PerCpuArray, RingBuf};
use aya_ebpf::programs::PerfEventContext;
use tracebyte_ebpf_common::sampler::{
    COMM_BYTES, CONFIG_FILTER, CONFIG_KERNEL, CONFIG_USER, Counters, Header, IN_KERNEL, STACK_BYTES_MAX,
};

/// What the session wants; the agent sets it before it loads the program, so the verifier
/// drops what is switched off.
#[unsafe(no_mangle)]
static CONFIG: Global<u32> = Global::new(CONFIG_KERNEL | CONFIG_USER);

/// Records on their way to the agent, which gives the size for its frequency and CPUs.
#[map]
static SAMPLES: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);

/// The processes to sample.
#[map]
static PIDS: HashMap<u32, u8> = HashMap::with_max_entries(1, 0);

#[map]
static COUNTERS: PerCpuArray<Counters> = PerCpuArray::with_max_entries(1, 0);

/// Where a record is built: 2 KiB do not fit on a program's stack of 512 bytes.
#[map]
static SCRATCH: PerCpuArray<Record> = PerCpuArray::with_max_entries(1, 0);

#[repr(C)]
struct Record {
    header: Header,
    // The user stack follows the kernel stack at once, wherever that ends.
    stacks: [u8; 2 * STACK_BYTES_MAX],
}

/// Takes one sample.
#[perf_event]
fn sampler(ctx: PerfEventContext) -> u32 {
    if let Some(counters) = COUNTERS.get_ptr_mut(0) {
        // SAFETY: the value belongs to this CPU, and no sample interrupts another on it
        // (the kernel runs one program of an event at a time), so nothing else writes it.
        let counters = unsafe { &mut *counters };
        match try_sample(&ctx) {
            Outcome::Taken => counters.samples += 1,
            Outcome::Lost => counters.lost += 1,
            Outcome::Idle => counters.idle += 1,
            Outcome::NotAsked => {}
        }
    }
    0
}

enum Outcome {
    Taken,
    Lost,
    Idle,
    NotAsked,
}

fn try_sample(ctx: &PerfEventContext) -> Outcome {
    let config = CONFIG.load();
    let pid_tgid = bpf_get_current_pid_tgid();
    let (pid, tid) = ((pid_tgid >> 32) as u32, pid_tgid as u32);
    if pid == 0 {
        return Outcome::Idle;
    }
    if config & CONFIG_FILTER != 0 && PIDS.get_ptr(pid).is_none() {
        return Outcome::NotAsked;
    }
    let Some(record) = SCRATCH.get_ptr_mut(0) else { return Outcome::Lost };
    // SAFETY: scratch memory of this CPU, which only the sample in progress uses; the
    // address of a field is within the value.
    let stacks = unsafe { &raw mut (*record).stacks }.cast::<u8>();

    // The lowest two bits of the code segment are the privilege level: 0 is the kernel.
    // SAFETY: the context of a perf event program is readable and begins with the registers.
    let in_kernel = unsafe { (*ctx.ctx).regs.cs } & 3 == 0;
    let kernel = if in_kernel && config & CONFIG_KERNEL != 0 { take_stack(ctx, stacks, 0) } else { 0 };
    let user = if config & CONFIG_USER != 0 {
        // SAFETY: `kernel` is at most half of `stacks`, so the address is within it.
        take_stack(ctx, unsafe { stacks.add(kernel as usize) }, u64::from(BPF_F_USER_STACK))
    } else {
        0
    };

    // SAFETY: the scratch value is at least as long as the header and both stacks; its
    // fields are written one by one and the name in place, which needs no copy, and so no
    // loop for the verifier to follow. The ring copies the record before the helper returns.
    let full = unsafe {
        let header = &raw mut (*record).header;
        (*header).pid = pid;
        (*header).tid = tid;
        (*header).flags = if in_kernel { IN_KERNEL } else { 0 };
        (*header).cpu = bpf_get_smp_processor_id();
        (*header).kernel_frames = (kernel / 8) as u32;
        (*header).user_frames = (user / 8) as u32;
        let comm = &raw mut (*header).comm;
        bpf_get_current_comm(comm.cast(), COMM_BYTES as u32);
        let bytes = size_of::<Header>() as u64 + kernel + user;
        let ring = (&raw const SAMPLES).cast_mut();
        bpf_ringbuf_output(ring.cast(), record.cast(), bytes, u64::from(BPF_RB_NO_WAKEUP))
    };
    if full == 0 { Outcome::Taken } else { Outcome::Lost }
}

/// Writes a stack to `to`, which has room for [`STACK_BYTES_MAX`]; gives its bytes, a
/// multiple of 8, and none where there is no such stack (a kernel thread's user stack).
#[inline(always)]
fn take_stack(ctx: &PerfEventContext, to: *mut u8, flags: u64) -> u64 {
    // SAFETY: `to` points into the scratch value with room for what is asked.
    let bytes = unsafe { bpf_get_stack(ctx.as_ptr(), to.cast(), STACK_BYTES_MAX as u32, flags) };
    if bytes < 0 {
        return 0;
    }
    // The mask states the limit in a way that every verifier follows through the addition.
    bytes as u64 & STACK_BYTES_MAX as u64
}
