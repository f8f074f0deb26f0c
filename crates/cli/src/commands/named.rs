//! The silo that an operator means.

use emmer::tables::{SiloAddress, SiloEntry, SiloStatus};

use crate::exit::{Failure, Result};

/// The row of the silo that is meant: of several incarnations the latest.
pub(super) fn find<'a>(silos: &'a [SiloEntry], meant: &str) -> Result<&'a SiloEntry> {
    let by_address = |row: &&SiloEntry| match meant.parse::<SiloAddress>() {
        Ok(address) => row.address == address,
        Err(_) => row.address.endpoint().to_string() == meant,
    };
    let latest = silos.iter().filter(by_address).max_by_key(|row| row.address.epoch());
    if let Some(row) = latest {
        return Ok(row);
    }
    let named = silos.iter().filter(|row| &*row.instance_name == meant);
    let (dead, alive): (Vec<_>, Vec<_>) = named.partition(|row| row.status == SiloStatus::Dead);
    match (alive.as_slice(), dead.last()) {
        ([one], _) | ([], Some(one)) => Ok(one),
        ([], None) => Err(Failure::other(format!(
            "there is no silo {meant:?} in the table: expected ip:port:epoch, ip:port or a name, \
             as `emmer members` shows them"
        ))),
        (several, _) => {
            let several: Vec<_> = several.iter().map(|row| row.address.to_string()).collect();
            let several = several.join(", ");
            Err(Failure::other(format!("several silos are called {meant}: say which of {several}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use emmer::tables::Timestamp;

    use super::*;

    fn silo(port: u16, epoch: u64, status: SiloStatus, name: &str) -> SiloEntry {
        let address = SiloAddress::new(SocketAddr::from(([127, 0, 0, 1], port)), epoch);
        let mut row = SiloEntry::new(address, status, Timestamp::from_millis(0));
        row.instance_name = name.into();
        row
    }

    #[test]
    fn a_silo_is_found_by_its_address_its_endpoint_and_its_name() {
        let silos = vec![
            silo(11111, 3, SiloStatus::Dead, "left"),
            silo(11111, 7, SiloStatus::Active, "left"),
            silo(11112, 5, SiloStatus::Dead, "right"),
        ];
        let found = |meant: &str| find(&silos, meant).map(|row| row.address.epoch());
        for (meant, epoch) in
            [("127.0.0.1:11111", 7), ("127.0.0.1:11111:3", 3), ("127.0.0.1:11112", 5), ("left", 7)]
        {
            assert_eq!(found(meant), Ok(epoch), "{meant}");
        }
        let error = found("127.0.0.1:1").unwrap_err();
        assert!(error.message.contains("ip:port:epoch"), "{error:?}");
        let mut two = silos.clone();
        two[0].status = SiloStatus::Active;
        let error = find(&two, "left").unwrap_err();
        assert!(error.message.contains("127.0.0.1:11111:3"), "{error:?}");
    }
}
