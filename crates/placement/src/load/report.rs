//! The report of one silo about its load, in eight bytes.

/// Load of a silo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of activations.
    pub activations: u32,
    /// Number of activations that were called within the last ten minutes.
    pub busy: u32,
    /// Number of calls from elsewhere that are under way.
    pub calls: u32,
    /// Use of the processors in percent: of the machine's, or of those that the process may use,
    /// whichever is more. None where it is not measured.
    pub cpu: Option<u8>,
    /// Use of the memory in percent: of the machine's, or of the container's limit. None where that
    /// is not measured.
    pub memory: Option<u8>,
    /// It takes no new activations for now.
    pub overloaded: bool,
}

/// The bytes of a packed report.
pub(super) const PACKED: usize = 8;

/// In place of a report that is missing.
pub(super) const MISSING: [u8; PACKED] = [0xff; PACKED];

/// A percentage that is not known.
const NO_PERCENT: u8 = 0xff;

/// The last of the places that a report can name.
pub(super) const PLACE_MAX: u8 = 126;

impl LoadReport {
    /// Eight bytes, which keep eleven binary digits of the counts of activations and four of the
    /// calls. `place`: the place of the silo's manifest in the message, 0 without one, at most
    /// [`PLACE_MAX`].
    pub(super) fn packed(&self, place: u8) -> [u8; PACKED] {
        let [a, b] = short::<11>(self.activations).to_be_bytes();
        let [c, d] = short::<11>(self.busy).to_be_bytes();
        let [_, calls] = short::<4>(self.calls.min((1 << 19) - 1)).to_be_bytes();
        let percent = |value: Option<u8>| value.map_or(NO_PERCENT, |value| value.min(100));
        let flags = u8::from(self.overloaded) | place.min(PLACE_MAX) << 1;
        [a, b, c, d, calls, percent(self.cpu), percent(self.memory), flags]
    }

    /// The report in eight bytes, and the place; none where it is missing.
    pub(super) fn unpacked(bytes: [u8; PACKED]) -> Option<(Self, u8)> {
        let [a, b, c, d, calls, cpu, memory, flags] = bytes;
        let percent = |value: u8| (value <= 100).then_some(value);
        let report = Self {
            activations: long::<11>(u16::from_be_bytes([a, b]))?,
            busy: long::<11>(u16::from_be_bytes([c, d]))?,
            calls: long::<4>(u16::from(calls))?,
            cpu: percent(cpu),
            memory: percent(memory),
            overloaded: flags & 1 == 1,
        };
        Some((report, flags >> 1))
    }
}

/// The first `DIGITS` binary digits of a number, and how many were left out.
fn short<const DIGITS: u32>(number: u32) -> u16 {
    let left_out = (u32::BITS - number.leading_zeros()).saturating_sub(DIGITS);
    // Digits below 2^11, and at most 21 left out.
    u16::try_from(left_out << DIGITS | number >> left_out).unwrap_or(u16::MAX)
}

/// The number that was shortened; none for what no number becomes.
const fn long<const DIGITS: u32>(short: u16) -> Option<u32> {
    let (left_out, digits) = ((short as u32) >> DIGITS, (short as u32) & ((1 << DIGITS) - 1));
    if left_out + DIGITS > u32::BITS { None } else { Some(digits << left_out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_keep_eleven_digits_and_percents_are_whole() {
        for n in [0, 1, 2_047, 2_048, 4_095, 99_999, 1 << 31, u32::MAX] {
            let report = LoadReport {
                activations: n,
                busy: n / 2,
                calls: n.min(400_000),
                cpu: Some(100),
                memory: None,
                overloaded: n % 2 == 1,
            };
            let (back, place) = LoadReport::unpacked(report.packed(PLACE_MAX)).unwrap();
            assert_eq!(place, PLACE_MAX);
            for (now, was) in [(back.activations, report.activations), (back.busy, report.busy)] {
                assert!(now <= was && was - now <= was >> 10, "{was} became {now}");
            }
            assert!(back.calls <= report.calls && report.calls - back.calls <= report.calls >> 3);
            assert_eq!((back.cpu, back.memory, back.overloaded), (Some(100), None, n % 2 == 1));
        }
    }

    /// The bytes as the page about the wire describes them.
    #[test]
    fn a_report_is_these_bytes() {
        let report = LoadReport {
            activations: 1_000,
            busy: 2_050,
            calls: 17,
            cpu: Some(40),
            memory: None,
            overloaded: true,
        };
        // 2,050 is 1,025 with one digit left out; 17 is 8 with one digit left out.
        let bytes = [0x03, 0xe8, 0x0c, 0x01, 0x18, 0x28, 0xff, 0x05];
        assert_eq!(report.packed(2), bytes);
        assert_eq!(LoadReport::unpacked(bytes), Some((LoadReport { calls: 16, ..report }, 2)));
        let empty = LoadReport { cpu: Some(0), memory: Some(0), ..LoadReport::default() };
        assert_eq!(empty.packed(0), [0; PACKED]);
    }

    #[test]
    fn a_missing_report_is_none_and_no_bytes_are_a_surprise() {
        assert_eq!(LoadReport::unpacked(MISSING), None);
        for first in 0..=u8::MAX {
            if let Some((report, place)) = LoadReport::unpacked([first; PACKED]) {
                let again = report.packed(place);
                assert_eq!(LoadReport::unpacked(again), Some((report, place.min(PLACE_MAX))));
            }
        }
    }
}
