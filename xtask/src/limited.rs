//! `cargo xtask limited SECONDS PROGRAM ARGUMENTS`: runs a test program, and ends it when it takes
//! too long.
//!
//! Cargo starts every test program of the `test` step through this. A test that hangs then fails by
//! its name, and the programs behind it still run. What the program started itself is not ended
//! with it.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How often to look whether the program has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What the line about a program that was ended begins with.
pub(crate) const ENDED: &str = "ended for taking too long: ";

/// The exit code of a program that was ended; what `timeout` says.
const TIMED_OUT: u8 = 124;

/// What cargo has to be told so that it runs each test program for at most `limit`.
pub(crate) fn cargo_config(program: &Path, limit: Duration) -> String {
    let runner = [program.display().to_string(), "limited".to_owned(), limit.as_secs().to_string()];
    format!("target.'cfg(all())'.runner = {runner:?}")
}

/// Runs `program` for at most `limit`, and ends as it ends.
///
/// # Errors
/// When the program could not be started or waited for.
pub(crate) fn run(
    limit: Duration,
    program: &str,
    arguments: &[String],
) -> Result<ExitCode, String> {
    let say = |e: std::io::Error| format!("{program}: {e}");
    let mut child = Command::new(program).args(arguments).spawn().map_err(say)?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(say)? {
            // Without a code a signal ended it, as a panic in a panic does.
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
        if start.elapsed() > limit {
            // An error means that it has ended just now.
            let _ = child.kill();
            child.wait().map_err(say)?;
            println!("\n{ENDED}{program}, {} s", limit.as_secs());
            return Ok(ExitCode::from(TIMED_OUT));
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> ExitCode {
        run(limit, "sh", &["-c".to_owned(), script.to_owned()]).unwrap()
    }

    #[test]
    fn a_program_ends_as_it_would_alone() {
        assert_eq!(sh("exit 7", Duration::MAX), ExitCode::from(7));
        assert_eq!(sh("kill -KILL $$", Duration::MAX), ExitCode::FAILURE);
        assert!(
            run(Duration::MAX, "/no/such/program", &[]).unwrap_err().contains("/no/such/program")
        );
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        assert_eq!(sh("exec sleep 1000", Duration::from_millis(50)), ExitCode::from(TIMED_OUT));
    }

    #[test]
    fn cargo_reads_the_configuration_as_it_is_meant() {
        let config = cargo_config(Path::new("/a folder/xtask"), Duration::from_secs(60));
        assert_eq!(config, r#"target.'cfg(all())'.runner = ["/a folder/xtask", "limited", "60"]"#);
    }
}
