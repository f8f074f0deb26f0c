//! Values of settings, or the texts that stand for them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use emmer_core::ClusterId;

use super::OptionError;

/// A value for a setting, or a text that stands for one: `"127.0.0.1:30000"`, `"shop"`, `"30s"`. A
/// text that stands for none is an error when the silo starts or the client connects.
pub trait Setting<T> {
    /// The value.
    ///
    /// # Errors
    /// Error in words: the text, and the expected form.
    fn value(self) -> Result<T, String>;
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

macro_rules! settings {
    ($($value:ty, $read:expr;)*) => {$(
        impl Setting<$value> for $value {
            fn value(self) -> Result<$value, String> {
                Ok(self)
            }
        }

        impl Setting<$value> for &str {
            fn value(self) -> Result<$value, String> {
                let read: fn(&str) -> Result<$value, String> = $read;
                read(self)
            }
        }

        impl Setting<$value> for String {
            fn value(self) -> Result<$value, String> {
                Setting::<$value>::value(self.as_str())
            }
        }
    )*};
}

settings! {
    ClusterId, |text| ClusterId::new(text).map_err(|error| error.to_string());
    SocketAddr, address;
    Duration, |text| emmer_membership::humantime::parse(text).map_err(|error| error.to_string());
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.trim().parse().map_err(|_| {
        let why = no_address(text.trim());
        let text = shown(text);
        format!("{text:?} is not an address{why}; expected ip:port, as in 127.0.0.1:30000")
    })
}

/// The likeliest reason why a text is no address.
fn no_address(text: &str) -> &'static str {
    if text.parse::<IpAddr>().is_ok() {
        return ": the port is missing";
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return if text.parse::<u16>().is_ok() { ": the IP address is missing" } else { "" };
    };
    match port.parse::<u64>() {
        Ok(port) if port > u64::from(u16::MAX) => ": a port is at most 65535",
        Ok(_) if host.is_empty() => ": the IP address is missing (0.0.0.0 stands for all)",
        Ok(_) if host.contains(char::is_alphabetic) && !host.contains(':') => {
            ": names of hosts are not allowed here, write an IP address"
        }
        Ok(_) if host.parse::<std::net::Ipv6Addr>().is_ok() => {
            ": an IPv6 address stands in brackets, as in [::1]:30000"
        }
        _ => "",
    }
}

impl Setting<SocketAddr> for ([u8; 4], u16) {
    fn value(self) -> Result<SocketAddr, String> {
        Ok(self.into())
    }
}

impl Setting<SocketAddr> for (IpAddr, u16) {
    fn value(self) -> Result<SocketAddr, String> {
        Ok(self.into())
    }
}

impl Setting<SocketAddr> for (Ipv4Addr, u16) {
    fn value(self) -> Result<SocketAddr, String> {
        Ok(self.into())
    }
}

/// The first setting whose text stood for no value.
#[derive(Debug, Default)]
pub(crate) struct Wrong(Option<OptionError>);

impl Wrong {
    /// The value of a setting, if it is one.
    pub(crate) fn read<T>(&mut self, option: &str, setting: impl Setting<T>) -> Option<T> {
        match setting.value() {
            Ok(value) => Some(value),
            Err(reason) => {
                self.0.get_or_insert_with(|| OptionError { option: option.to_owned(), reason });
                None
            }
        }
    }

    /// # Errors
    /// There is one.
    pub(crate) fn check(self) -> Result<(), OptionError> {
        self.0.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_for_values_and_the_first_wrong_one_is_told() {
        let mut wrong = Wrong::default();
        let listen: Option<SocketAddr> = wrong.read("listen", "127.0.0.1:3");
        assert_eq!(listen, Some(([127, 0, 0, 1], 3).into()));
        assert_eq!(wrong.read("wait", "2m"), Some(Duration::from_secs(120)));
        assert_eq!(wrong.read("cluster_id", "shop"), ClusterId::new("shop").ok());
        let none: Option<SocketAddr> = wrong.read("gateway", "localhost:3");
        assert_eq!(none, None);
        let none: Option<ClusterId> = wrong.read("cluster_id", "two words");
        assert_eq!(none, None);
        let error = wrong.check().unwrap_err().to_string();
        assert!(
            error.starts_with("gateway: \"localhost:3\" is not an address: names of hosts"),
            "{error}"
        );
        for (text, why) in [
            ("127.0.0.1", ": the port is missing"),
            ("::1", ": the port is missing"),
            ("30000", ": the IP address is missing"),
            (":30000", ": the IP address is missing (0.0.0.0 stands for all)"),
            ("127.0.0.1:70000", ": a port is at most 65535"),
            ("fe80::1:30000000", ": a port is at most 65535"),
            ("10.0.0.256:1", ""),
            ("", ""),
        ] {
            let error = Setting::<SocketAddr>::value(text).unwrap_err();
            let expected = format!("{text:?} is not an address{why}; expected ip:port");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert!(Setting::<Duration>::value("5").is_err());
    }
}
