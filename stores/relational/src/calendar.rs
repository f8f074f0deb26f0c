//! Milliseconds since 1970 UTC as dates and back, for servers whose drivers speak of years and
//! months.

/// 0001-01-01 00:00:00.000 UTC, the first moment that every server's calendar has.
pub const FIRST_MS: i64 = -62_135_596_800_000;
/// 9999-12-31 23:59:59.999 UTC, the last one.
pub const LAST_MS: i64 = 253_402_300_799_999;

const DAY_MS: i64 = 86_400_000;

/// A moment as a calendar in UTC shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// 1 to 9999.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// 0 to 999.
    pub millisecond: u16,
}

impl Date {
    /// The date of a moment; none outside the years 1 to 9999.
    pub fn from_millis(ms: i64) -> Option<Self> {
        if !(FIRST_MS..=LAST_MS).contains(&ms) {
            return None;
        }
        let (days, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
        // Years that begin in March, in eras of 400 years, each of 146,097 days: the leap day is
        // the last of its year.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Some(Self {
            year: u16::try_from(year).ok()?,
            month: u8::try_from(month).ok()?,
            day: u8::try_from(day).ok()?,
            hour: u8::try_from(of_day / 3_600_000).ok()?,
            minute: u8::try_from(of_day / 60_000 % 60).ok()?,
            second: u8::try_from(of_day / 1_000 % 60).ok()?,
            millisecond: u16::try_from(of_day % 1_000).ok()?,
        })
    }

    /// The days from 0001-01-01 to this date.
    pub fn days_since_year_one(&self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = i64::from(self.year) - i64::from(month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let march_month = (month + 9) % 12;
        let of_year = (153 * march_month + 2) / 5 + day - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 306
    }

    /// The moment of this date.
    pub fn millis(&self) -> i64 {
        let of_day =
            (i64::from(self.hour) * 60 + i64::from(self.minute)) * 60 + i64::from(self.second);
        FIRST_MS
            + self.days_since_year_one() * DAY_MS
            + of_day * 1_000
            + i64::from(self.millisecond)
    }
}

impl std::fmt::Display for Date {
    /// `2026-11-21 18:10:00.000`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { year, month, day, hour, minute, second, millisecond } = self;
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millisecond:03}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_and_dates_moments() {
        for (ms, shown) in [
            (0, "1970-01-01 00:00:00.000"),
            (-1, "1969-12-31 23:59:59.999"),
            (951_782_400_000, "2000-02-29 00:00:00.000"),
            (951_868_800_123, "2000-03-01 00:00:00.123"),
            (1_795_265_085_123, "2026-11-21 12:44:45.123"),
            (FIRST_MS, "0001-01-01 00:00:00.000"),
            (LAST_MS, "9999-12-31 23:59:59.999"),
        ] {
            let date = Date::from_millis(ms).unwrap();
            assert_eq!((date.to_string().as_str(), date.millis()), (shown, ms));
        }
        assert_eq!(Date::from_millis(FIRST_MS).unwrap().days_since_year_one(), 0);
        assert_eq!((Date::from_millis(FIRST_MS - 1), Date::from_millis(LAST_MS + 1)), (None, None));
    }

    #[test]
    fn every_day_of_eight_hundred_years_is_its_own() {
        let mut last = None;
        for day in 0..300_000 {
            let ms = -100_000 * DAY_MS + day * DAY_MS;
            let date = Date::from_millis(ms).unwrap();
            assert_eq!(date.millis(), ms);
            assert!(last.is_none_or(|last| last < date.to_string()));
            last = Some(date.to_string());
        }
    }
}
