//! The cost of compiling a grain method: CPU, bytes of the program, memory of rustc.
//!
//! `cargo run -p emmer-benches --example compile` writes an application of 1, 21 and 101 grains
//! with four small methods each below `target/compile`, and compiles its last crate; then the same
//! of kameo's actors, from the registry. In release the cost of a method is a part of the
//! difference between 21 grains and one. In debug the 101 grains count as a whole. Linux only: the
//! figures come from `/proc`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use emmer_benches::Result;
use emmer_report::Goal;
use emmer_report::numbers::record;

/// Set for the program itself where cargo calls it instead of rustc: the file of its figures.
const FIGURES: &str = "EMMER_COMPILE_FIGURES";
/// The name of the crate that is measured.
const APPLICATION: &str = "application";
/// Methods of a grain.
const METHODS: u64 = 4;
/// Ticks of the kernel's clock in a second, as `/proc` counts.
const TICKS: u64 = 100;

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if let (Ok(figures), Some(rustc)) = (std::env::var(FIGURES), arguments.next()) {
        return stand_in(&rustc, &arguments.collect::<Vec<_>>(), Path::new(&figures));
    }
    println!("in release, for each method:");
    let mut goals = Vec::new();
    for kind in [Kind::Emmer, Kind::Kameo] {
        let (few, many) = (kind.compiled(1, true)?, kind.compiled(21, true)?);
        let methods = 20 * METHODS;
        let cpu = many.cpu.saturating_sub(few.cpu).as_secs_f64() / f64_of(methods);
        let bytes = many.program.saturating_sub(few.program) / methods;
        println!("  {:<6} {cpu:.2} s of CPU, {} KB", kind.name(), bytes / 1_000);
        let name = kind.name();
        goals.push(Goal::at_most(format!("{name}: a method in release, s of CPU"), cpu, 0.5));
        let kb = f64_of(bytes / 1_000);
        goals.push(Goal::at_most(format!("{name}: a method in release, KB"), kb, 40.0));
    }
    println!("in debug, {} methods, the last crate as a whole:", 101 * METHODS);
    for kind in [Kind::Emmer, Kind::Kameo] {
        let (few, many) = (kind.compiled(1, false)?, kind.compiled(101, false)?);
        println!(
            "  {:<6} {:.0} s of CPU, rustc takes {} MB; a program of {} MB, with one grain {} MB",
            kind.name(),
            many.cpu.as_secs_f64(),
            many.memory_kb / 1_000,
            many.program / 1_000_000,
            few.program / 1_000_000,
        );
        let what = |what| format!("{}: 404 methods in debug, {what}", kind.name());
        let (memory, program) = (f64_of(many.memory_kb / 1_000), f64_of(many.program / 1_000_000));
        goals.push(Goal::at_most(what("s of CPU"), many.cpu.as_secs_f64(), 60.0));
        goals.push(Goal::at_most(what("MB of rustc"), memory, 1_200.0));
        goals.push(Goal::at_most(what("MB of program"), program, 150.0));
    }
    record("compile", &goals)?;
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
const fn f64_of(number: u64) -> f64 {
    number as f64
}

/// Whose application.
#[derive(Clone, Copy)]
enum Kind {
    Emmer,
    Kameo,
}

/// The cost of the last crate.
struct Cost {
    cpu: Duration,
    memory_kb: u64,
    program: u64,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Emmer => "Emmer",
            Self::Kameo => "kameo",
        }
    }

    fn dependency(self) -> String {
        match self {
            Self::Emmer => {
                let emmer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/emmer");
                format!("emmer = {{ path = {:?} }}", emmer.display())
            }
            Self::Kameo => "kameo = \"=0.22.2\"".to_owned(),
        }
    }

    fn source(self, grains: u64) -> String {
        match self {
            Self::Emmer => of_emmer(grains),
            Self::Kameo => of_kameo(grains),
        }
    }

    fn folder(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/compile").join(self.name())
    }

    /// Compiles the application, and its dependencies first.
    fn compiled(self, grains: u64, release: bool) -> Result<Cost> {
        let folder = self.folder();
        std::fs::create_dir_all(folder.join("src"))?;
        let manifest = format!(
            "[package]\nname = \"{APPLICATION}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
             [dependencies]\n{}\ntokio = {{ version = \"1\", features = [\"full\"] }}\n\n\
             [workspace]\n",
            self.dependency()
        );
        std::fs::write(folder.join("Cargo.toml"), manifest)?;
        if matches!(self, Self::Emmer) {
            // The versions that this workspace has.
            std::fs::copy(
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock"),
                folder.join("Cargo.lock"),
            )?;
        }
        std::fs::write(folder.join("src/main.rs"), self.source(grains))?;
        let figures = folder.join("figures");
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&folder).args(["build", "--quiet"]).args(release.then_some("--release"));
        cargo.env("CARGO_TARGET_DIR", "target").env("RUSTC_WRAPPER", std::env::current_exe()?);
        cargo.env(FIGURES, &figures).env_remove("RUSTFLAGS");
        if !cargo.status()?.success() {
            return Err(format!("{} does not compile", folder.display()).into());
        }
        let text = std::fs::read_to_string(&figures)?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next().and_then(|number| number.ok()).ok_or("no figures");
        let (cpu_ms, memory_kb) = (next()?, next()?);
        let build = if release { "release" } else { "debug" };
        let program = std::fs::metadata(folder.join("target").join(build).join(APPLICATION))?.len();
        Ok(Cost { cpu: Duration::from_millis(cpu_ms), memory_kb, program })
    }
}

/// Runs rustc, and writes what the application's crate has cost.
fn stand_in(rustc: &str, arguments: &[String], figures: &Path) -> Result<ExitCode> {
    let mut child = Command::new(rustc).args(arguments).stdin(Stdio::inherit()).spawn()?;
    let name = arguments.iter().position(|word| word == "--crate-name").map(|at| at + 1);
    let is_measured = name.and_then(|at| arguments.get(at)).is_some_and(|n| n == APPLICATION);
    if is_measured {
        std::fs::write(figures, cost_of(child.id()))?;
    }
    let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The milliseconds of CPU and the kilobytes of memory of a process, once it has ended.
fn cost_of(process: u32) -> String {
    let mut memory_kb = 0;
    loop {
        let (status, stat) = (read(process, "status"), read(process, "stat"));
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        memory_kb = memory_kb.max(peak.unwrap_or(0));
        // Behind the name, which may hold anything: the state, and from the twelfth field on the
        // ticks of the process and of its children, the linker.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let mut fields = fields.split_whitespace();
        if fields.next().is_none_or(|state| state == "Z") {
            let ticks = fields.skip(10).take(4).filter_map(|ticks| ticks.parse::<u64>().ok());
            return format!("{} {memory_kb}", ticks.sum::<u64>() * 1_000 / TICKS);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read(process: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default()
}

fn of_emmer(grains: u64) -> String {
    let mut text = "use emmer::prelude::*;\n".to_owned();
    let mut hosted = String::new();
    let mut used = String::new();
    for n in 0..grains {
        let _ = write!(
            text,
            "
#[grain_interface(key = String)]
pub trait G{n} {{
    async fn a(&mut self, n: u64) -> Result<u64, StateError>;
    async fn b(&self) -> u64;
    async fn c(&mut self, s: String, v: Vec<u64>) -> usize;
    async fn d(&self, o: Option<String>) -> String;
}}
#[derive(Grain)]
struct C{n} {{ #[state(\"s\")] s: Persistent<u64> }}
#[grain]
impl G{n} for C{n} {{
    async fn a(&mut self, n: u64) -> Result<u64, StateError> {{ *self.s += n; \
             self.s.write().await?; Ok(*self.s) }}
    async fn b(&self) -> u64 {{ *self.s }}
    async fn c(&mut self, s: String, v: Vec<u64>) -> usize {{ *self.s += v.len() as u64; \
             s.len() + v.len() }}
    async fn d(&self, o: Option<String>) -> String {{ o.unwrap_or_default() + \"x\" }}
}}
async fn use{n}(silo: &Silo) -> emmer::Result<()> {{ let g = silo.grain::<dyn \
             G{n}>(\"k\"); g.a(1).await?; g.b().await?; g.c(\"s\".into(), vec![1]).await?; \
             g.d(None).await?; Ok(()) }}
"
        );
        let _ = writeln!(hosted, "    let b = b.host::<dyn G{n}, C{n}>();");
        let _ = writeln!(used, "    Box::pin(use{n}(&silo)).await?;");
    }
    let _ = write!(
        text,
        "
#[tokio::main]
async fn main() -> emmer::Result<()> {{
    let b = Silo::builder().store(\"memory://\");
{hosted}    let silo = b.start().await?;
{used}    silo.stop().await?;
    Ok(())
}}
"
    );
    text
}

fn of_kameo(actors: u64) -> String {
    let mut text = "use kameo::prelude::*;\n".to_owned();
    let mut used = String::new();
    for n in 0..actors {
        let message = |name: &str, reply: &str, body: &str| {
            format!(
                "impl Message<{name}{n}> for C{n} {{ type Reply = {reply}; async fn handle(&mut \
                 self, m: {name}{n}, _: &mut Context<Self, Self::Reply>) -> {reply} {{ {body} }} \
                 }}\n"
            )
        };
        let _ = writeln!(
            text,
            "\n#[derive(Actor, Default)]\nstruct C{n} {{ s: u64 }}\nstruct A{n}(u64); struct \
             B{n}; struct CC{n}(String, Vec<u64>); struct D{n}(Option<String>);"
        );
        text += &message("A", "u64", "self.s += m.0; tokio::task::yield_now().await; self.s");
        text += &message("B", "u64", "let _ = m; self.s");
        text += &message("CC", "usize", "m.0.len() + m.1.len()");
        text += &message("D", "String", "m.0.unwrap_or_default() + \"x\"");
        let _ = writeln!(
            text,
            "async fn use{n}() {{ let g = C{n}::spawn(C{n}::default()); g.ask(A{n}(1)).await\
             .unwrap(); g.ask(B{n}).await.unwrap(); g.ask(CC{n}(\"s\".into(), vec![1])).await\
             .unwrap(); g.ask(D{n}(None)).await.unwrap(); }}"
        );
        let _ = writeln!(used, "    Box::pin(use{n}()).await;");
    }
    let _ = write!(text, "#[tokio::main]\nasync fn main() {{\n{used}}}\n");
    text
}
