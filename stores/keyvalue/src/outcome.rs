//! The answer to a commit that happened.

use emmer_store::{CommitOutcome, Etag, Mutation};

/// The answer to a commit whose rows now have the etags that `etag` gives for their keys.
pub fn committed(mutations: &[Mutation], etag: impl Fn(&str) -> Etag) -> CommitOutcome {
    let etags = mutations.iter().map(|mutation| match mutation {
        Mutation::Insert { row } | Mutation::Replace { row, .. } | Mutation::Upsert { row } => {
            Some(etag(row.key()))
        }
        Mutation::Delete { .. } | Mutation::Check { .. } => None,
    });
    CommitOutcome::Committed(etags.collect())
}

#[cfg(test)]
mod tests {
    use emmer_store::Row;

    use super::*;

    #[test]
    fn only_rows_that_are_there_have_etags() {
        let row_key = "r".to_owned();
        let mutations = [
            Mutation::Check { row_key: row_key.clone(), etag: "1".into() },
            Mutation::Upsert { row: Row::new("u") },
            Mutation::Delete { row_key, etag: None },
        ];
        let outcome = committed(&mutations, |row| row.into());
        assert_eq!(outcome, CommitOutcome::Committed(vec![None, Some("u".into()), None]));
    }
}
