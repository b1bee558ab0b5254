//! What requests may do at the same time: three ways to lock, and none.
//!
//! | way | what is locked, when |
//! |---|---|
//! | none | nothing beyond what the database's own statements lock |
//! | rows | `FOR UPDATE`: the cart, the books of an order, and the book that are changed |
//! | tables | at its start an interaction locks all its tables, `SHARE` to read, `EXCLUSIVE` to write |
//! | application | the same by a read-write lock for each table in the application |
//!
//! All lock in one order, that of [`Table::ALL`], and books by their ids, so that there is no deadlock by
//! order.

use std::fmt::Write;
use std::sync::Arc;

use clap::ValueEnum;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::schema::{TABLE_LOCK, Table};

/// What interactions lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Locking {
    /// Nothing beyond what the statements themselves lock
    #[default]
    None,
    /// Rows, by `FOR UPDATE`: carts, and the books that are bought or changed
    Rows,
    /// All tables of an interaction at its start, in the database (strict two-phase locking); only within
    /// transactions
    Tables,
    /// All tables of an interaction, by read-write locks of the shop, for as long as it takes
    Application,
}

/// The tables that an interaction touches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables {
    /// Those that it only reads.
    pub(super) read: &'static [Table],
    /// Those that it writes, whether it reads them or not.
    pub(super) written: &'static [Table],
}

impl Tables {
    /// One that only reads.
    pub(super) const fn read(read: &'static [Table]) -> Self {
        Self { read, written: &[] }
    }

    /// The statements that lock them all, in the common order. In MariaDB each table has a row that stands
    /// for it: `LOCK TABLES` would end the transaction, and wants all names of a table at once.
    pub(super) fn statements(self, is_mariadb: bool) -> String {
        let mut text = String::new();
        for table in Table::ALL {
            let (mode, row) = if self.written.contains(&table) {
                ("EXCLUSIVE", "FOR UPDATE")
            } else if self.read.contains(&table) {
                ("SHARE", "LOCK IN SHARE MODE")
            } else {
                continue;
            };
            let name = table.name();
            if is_mariadb {
                write!(text, "SELECT name FROM {TABLE_LOCK} WHERE name = '{name}' {row};")
            } else {
                write!(text, "LOCK TABLE {name} IN {mode} MODE;")
            }
            .expect("a string takes everything");
        }
        text
    }
}

/// The application's own locks, one for each table.
#[derive(Debug, Default)]
pub(super) struct Locks([Arc<RwLock<()>>; Table::ALL.len()]);

/// Locks that are held until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Held {
    _read: Vec<OwnedRwLockReadGuard<()>>,
    _written: Vec<OwnedRwLockWriteGuard<()>>,
}

impl Locks {
    /// Locks tables in the common order.
    pub(super) async fn lock(&self, tables: Tables) -> Held {
        let mut held = Held::default();
        for table in Table::ALL {
            let lock = Arc::clone(&self.0[table as usize]);
            if tables.written.contains(&table) {
                held._written.push(lock.write_owned().await);
            } else if tables.read.contains(&table) {
                held._read.push(lock.read_owned().await);
            }
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_locked_in_one_order_and_by_what_is_done_with_them() {
        let tables =
            Tables { read: &[Table::Item, Table::Customer], written: &[Table::Orders, Table::Address] };
        assert_eq!(
            tables.statements(false),
            "LOCK TABLE address IN EXCLUSIVE MODE;LOCK TABLE customer IN SHARE MODE;\
             LOCK TABLE item IN SHARE MODE;LOCK TABLE orders IN EXCLUSIVE MODE;"
        );
        let of_two = Tables { read: &[Table::Item], written: &[Table::Address] };
        assert_eq!(
            of_two.statements(true),
            "SELECT name FROM table_lock WHERE name = 'address' FOR UPDATE;\
             SELECT name FROM table_lock WHERE name = 'item' LOCK IN SHARE MODE;"
        );
    }

    #[test]
    fn the_order_is_that_of_the_numbers() {
        assert!(Table::ALL.iter().enumerate().all(|(index, table)| *table as usize == index));
    }

    #[tokio::test]
    async fn readers_share_and_a_writer_is_alone() {
        let locks = Locks::default();
        let reading = Tables::read(&[Table::Item]);
        let writing = Tables { read: &[], written: &[Table::Item] };
        let first = locks.lock(reading).await;
        let second = locks.lock(reading).await;
        let item = &locks.0[Table::Item as usize];
        assert!(item.try_write().is_err());
        drop((first, second));
        let _alone = locks.lock(writing).await;
        assert!(item.try_read().is_err());
    }
}
