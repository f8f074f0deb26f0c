//! `emmer silo --telemetry`, with the feature and without it.

use crate::harness::{failure, run, store_in};

const FREE: &str = "127.0.0.1:0";

#[test]
#[cfg(not(feature = "telemetry"))]
fn a_program_without_it_says_how_to_build_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let of_silo = ["silo", "--store", &store, "--cluster-id", "dev", "--listen", FREE];
    let (code, said) = failure(&run(&[&of_silo[..], &["--telemetry", FREE]].concat()));
    assert!(code == 2 && said.contains("--features telemetry"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
#[cfg(feature = "telemetry")]
fn a_silo_tells_where_it_is_scraped_and_that_it_leaves() {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use crate::harness::{Process, wait_for};

    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let of_silo = ["silo", "--store", &store, "--cluster-id", "dev", "--listen", FREE];
    let taken = TcpListener::bind(FREE).unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (address, code, says) in [("here", 2, "--telemetry: telemetry: "), (&taken, 4, &taken)] {
        let (found, said) = failure(&run(&[&of_silo[..], &["--telemetry", address]].concat()));
        assert!(found == code && said.contains(says), "{said}");
    }
    let mut process = Process::start(&[&of_silo[..], &["--telemetry", FREE]].concat());
    let line = process.lines_to("is active").unwrap().pop().unwrap();
    let (_, address) = line.rsplit_once(", telemetry http://").unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let get = |path: &str| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    assert!(get("/readyz").unwrap().ends_with("\r\n\r\nready\n"));
    assert!(get("/metrics").unwrap().contains("\nemmer_silo_status{status=\"Active\"} 1\n"));
    process.signal("TERM");
    // It says so, or has gone already.
    wait_for("the end of readiness", || {
        get("/readyz").map_or(Some(()), |answer| (!answer.contains(" 200 ")).then_some(()))
    });
    assert!(process.end().0.success());
}

#[test]
#[cfg(not(feature = "otlp"))]
fn a_program_without_otlp_says_how_to_build_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let of_silo = ["silo", "--store", &store, "--cluster-id", "dev", "--listen", FREE];
    for flag in [["--otlp", "http://127.0.0.1:4318"], ["--traces", "0.5"]] {
        let (code, said) = failure(&run(&[&of_silo[..], &flag].concat()));
        assert!(code == 2 && said.contains("--features otlp"), "{said}");
    }
}

#[test]
#[cfg(feature = "otlp")]
fn a_collector_that_is_none_is_refused_and_one_that_is_away_stops_nobody() {
    use crate::harness::Process;

    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let of_silo = ["silo", "--store", &store, "--cluster-id", "dev", "--listen", FREE];
    for (flags, says) in [
        (&["--otlp", "127.0.0.1:4318"][..], "is not the address of a collector"),
        (&["--otlp", "http://127.0.0.1:4318", "--traces", "2"], "is not a share of the calls"),
        (&["--otlp", "http://127.0.0.1:4318", "--traces", "all"], "--traces: traces: "),
        (&["--traces", "0.5"], "traces go to a collector"),
    ] {
        let (code, said) = failure(&run(&[&of_silo[..], flags].concat()));
        assert!(code == 2 && said.contains(says), "{said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
    let away = ["--otlp", "http://127.0.0.1:1", "--traces", "1", "--log", "info"];
    let mut process = Process::start(&[&of_silo[..], &away].concat());
    process.lines_to("is active").unwrap();
    process.signal("TERM");
    let (status, log) = process.end();
    assert!(status.success(), "{log}");
    assert_eq!(log.matches("the OTLP collector takes nothing").count(), 1, "{log}");
    assert!(!log.contains("127.0.0.1:1/") && !log.contains("Some("), "{log}");
}
