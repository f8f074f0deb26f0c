//! The guard of instruction counts: each function is run once under callgrind, and `cargo xtask
//! guard` compares the number of its instructions with `lab/benches/guard.json`. No clock takes
//! part.
#![allow(missing_docs, unused_qualifications, reason = "the macros make the items")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the guard")]

use std::hint::black_box;

use bytes::BytesMut;
use emmer_benches::parts::{Frames, Local, Registered, Views, decode, record_traces};
use gungraun::prelude::*;
use gungraun::{Callgrind, library_benchmark, library_benchmark_group, main};

fn local() -> Local {
    let local = Local::start().unwrap();
    // Everything that is made once is made before.
    local.calls(10).unwrap();
    local.activations(1_000_000..1_000_100).unwrap();
    local
}

fn frames() -> Frames {
    let mut frames = Frames::new();
    frames.encode(1_000).unwrap();
    frames
}

fn encoded() -> BytesMut {
    frames().encoded()
}

#[library_benchmark]
#[bench::thousand(setup = local)]
fn local_call(local: Local) -> Local {
    black_box(local.calls(1_000).unwrap());
    local
}

/// Of which no call happens to be recorded, but each might be.
fn local_traced() -> Local {
    drop(record_traces(0.0).unwrap());
    local()
}

#[library_benchmark]
#[bench::thousand(setup = local_traced)]
fn local_call_traces_on(local: Local) -> Local {
    black_box(local.calls(1_000).unwrap());
    local
}

#[library_benchmark]
#[bench::thousand(setup = local)]
fn activation(local: Local) -> Local {
    black_box(local.activations(0..1_000).unwrap());
    local
}

#[library_benchmark]
#[bench::thousand(setup = frames)]
fn frame_encode(mut frames: Frames) -> Frames {
    black_box(frames.encode(1_000).unwrap());
    frames
}

#[library_benchmark]
#[bench::thousand(setup = encoded)]
fn frame_decode(encoded: BytesMut) -> u64 {
    black_box(decode(encoded).unwrap())
}

#[library_benchmark]
#[bench::thousand_silos(args = (1_000), setup = Views::of)]
fn view_application(mut views: Views) -> Views {
    black_box(views.apply(2));
    views
}

#[library_benchmark]
#[bench::thousand(args = (1_000), setup = Registered::of)]
fn directory_lookup(mut registered: Registered) -> Registered {
    black_box(registered.look_up());
    registered
}

library_benchmark_group!(
    name = guard,
    benchmarks = [
        local_call,
        local_call_traces_on,
        activation,
        frame_encode,
        frame_decode,
        view_application,
        directory_lookup
    ]
);

main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = guard
);
