//! Times of single parts: `cargo bench -p emmer-benches --bench parts`.
#![allow(missing_docs, reason = "the macros make the items")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the bench")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use emmer_benches::parts::{Frames, Local, Owners, Registered, Views, decode};

/// How many operations each measurement makes.
const COUNT: u64 = 1_000;

fn calls(c: &mut Criterion) {
    let local = Local::start().unwrap();
    let mut group = c.benchmark_group("call");
    group.throughput(Throughput::Elements(COUNT));
    group.bench_function("local, warm", |b| b.iter(|| local.calls(COUNT).unwrap()));
    group.finish();
}

fn frames(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame");
    group.throughput(Throughput::Elements(COUNT));
    let mut frames = Frames::new();
    group.bench_function("encode", |b| b.iter(|| frames.encode(COUNT).unwrap()));
    group.bench_function("decode", |b| {
        b.iter_batched(
            || frames.encoded(),
            |encoded| decode(encoded).unwrap(),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn tables(c: &mut Criterion) {
    let mut group = c.benchmark_group("look up");
    group.throughput(Throughput::Elements(COUNT));
    let mut registered = Registered::of(COUNT);
    group.bench_function("directory", |b| b.iter(|| registered.look_up()));
    let owners = Owners::of(1_000);
    group.bench_function("ring of 1,000 silos", |b| b.iter(|| owners.look_up()));
    group.finish();
}

fn views(c: &mut Criterion) {
    let mut group = c.benchmark_group("view");
    for silos in [100, 1_000] {
        let mut views = Views::of(silos);
        group.bench_function(format!("apply, {silos} silos"), |b| b.iter(|| views.apply(1)));
    }
    group.finish();
}

criterion_group!(parts, calls, frames, tables, views);
criterion_main!(parts);
