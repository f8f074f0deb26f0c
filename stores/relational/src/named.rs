//! What makes a store of its own name of [`Relational`](crate::Relational) with its driver.

/// Makes a type with a field `inner: Relational<_>` the system store that its field is.
#[macro_export]
macro_rules! relational_store {
    ($store:ty) => {
        impl ::std::fmt::Debug for $store {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_tuple(stringify!($store))
                    .field(&$crate::__store::SystemStore::describe(&self.inner))
                    .finish()
            }
        }

        impl $crate::__store::SystemStore for $store {
            fn describe(&self) -> String {
                self.inner.describe()
            }

            fn request_timeout(&self) -> Option<::std::time::Duration> {
                self.inner.request_timeout()
            }

            fn limits(&self) -> $crate::__store::StoreLimits {
                self.inner.limits()
            }

            fn ensure_tables<'a>(
                &'a self,
                tables: &'a [&'static $crate::__store::TableDecl],
            ) -> $crate::__store::BoxFuture<'a, $crate::__store::Result<()>> {
                self.inner.ensure_tables(tables)
            }

            fn read_partition<'a>(
                &'a self,
                table: &'static $crate::__store::TableDecl,
                partition: &'a str,
            ) -> $crate::__store::BoxFuture<'a, $crate::__store::Result<Vec<$crate::__store::StoredRow>>>
            {
                self.inner.read_partition(table, partition)
            }

            fn read_row<'a>(
                &'a self,
                table: &'static $crate::__store::TableDecl,
                partition: &'a str,
                row_key: &'a str,
            ) -> $crate::__store::BoxFuture<'a, $crate::__store::Result<Option<$crate::__store::StoredRow>>>
            {
                self.inner.read_row(table, partition, row_key)
            }

            fn read_some<'a>(
                &'a self,
                table: &'static $crate::__store::TableDecl,
                partition: &'a str,
                from: &'a str,
                limit: usize,
            ) -> $crate::__store::BoxFuture<'a, $crate::__store::Result<Vec<$crate::__store::StoredRow>>>
            {
                self.inner.read_some(table, partition, from, limit)
            }

            fn scan<'a>(
                &'a self,
                table: &'static $crate::__store::TableDecl,
                column: &'static str,
                range: ::std::ops::RangeInclusive<i64>,
                limit: usize,
            ) -> $crate::__store::BoxFuture<'a, $crate::__store::Result<Vec<$crate::__store::StoredRow>>>
            {
                self.inner.scan(table, column, range, limit)
            }

            fn commit<'a>(
                &'a self,
                table: &'static $crate::__store::TableDecl,
                partition: &'a str,
                mutations: Vec<$crate::__store::Mutation>,
            ) -> $crate::__store::BoxFuture<'a, $crate::__store::Result<$crate::__store::CommitOutcome>> {
                self.inner.commit(table, partition, mutations)
            }

            fn touch<'a>(
                &'a self,
                table: &'static $crate::__store::TableDecl,
                partition: &'a str,
                row_key: &'a str,
                column: &'static str,
                value: $crate::__store::Value,
            ) -> $crate::__store::BoxFuture<'a, $crate::__store::Result<()>> {
                self.inner.touch(table, partition, row_key, column, value)
            }

            fn append<'a>(
                &'a self,
                table: &'static $crate::__store::TableDecl,
                partition: &'a str,
                rows: Vec<$crate::__store::Row>,
            ) -> $crate::__store::BoxFuture<'a, $crate::__store::Result<()>> {
                self.inner.append(table, partition, rows)
            }

            fn delete_older_than<'a>(
                &'a self,
                table: &'static $crate::__store::TableDecl,
                partition: &'a str,
                column: &'static str,
                cutoff: $crate::__store::Timestamp,
            ) -> $crate::__store::BoxFuture<'a, $crate::__store::Result<u64>> {
                self.inner.delete_older_than(table, partition, column, cutoff)
            }

            fn examine(
                &self,
            ) -> $crate::__store::BoxFuture<'_, $crate::__store::Result<$crate::__store::Examination>> {
                self.inner.examine()
            }
        }
    };
}
