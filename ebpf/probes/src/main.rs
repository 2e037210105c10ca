//! tracebyte's kernel programs: one object, one file a family of probes.
//!
//! They must pass the verifier of every kernel from 5.10 on, so they use no BTF, no
//! `bpf_loop`, no fentry, no atomics that fetch, and no helper that lockdown refuses. The
//! object declares a GPL-compatible licence because `bpf_get_stack` asks for one.

#![no_std]
#![no_main]

mod sampler;

/// The kernel's spelling of a licence that may use every helper.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Never reached: the verifier refuses an object in which it could be.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
