//! Looking whether the shop's books balance, after whatever was done to it: rules of which no row may be an
//! exception.

use clap::Args;

use crate::Error;
use crate::database::{Connection, DatabaseError, Parameter};
use crate::schema::POPULATION;

/// What is checked.
#[derive(Debug, Args)]
pub struct Options {
    /// The database: postgres://user:password@host/database, or mysql://… for MariaDB
    #[arg(long, value_name = "URL")]
    pub database: String,
}

/// How many exceptions to a rule are named.
const NAMED: i64 = 5;

/// A rule: what holds, how many rows it is about, and a query for the exceptions, as texts.
struct Rule {
    holds: &'static str,
    table: &'static str,
    exceptions: &'static str,
}

/// What holds in every shop. The amounts are computed as [`Totals`](crate::money::Totals) computes them, by
/// the database.
const RULES: [Rule; 14] = [
    Rule {
        holds: "no stock is negative",
        table: "item",
        exceptions: "SELECT format('book %s: %s in stock', i_id, i_stock) FROM item WHERE i_stock < 0",
    },
    Rule {
        holds: "the five books related to one are five others",
        table: "item",
        exceptions: "SELECT format('book %s', i_id) FROM item WHERE i_id IN (i_related1, i_related2, i_related3, i_related4, i_related5) \
            OR i_related1 IN (i_related2, i_related3, i_related4, i_related5) OR i_related2 IN (i_related3, i_related4, i_related5) \
            OR i_related3 IN (i_related4, i_related5) OR i_related4 = i_related5",
    },
    Rule {
        holds: "every order number is there once",
        table: "orders",
        exceptions: "SELECT format('order %s: %s times', o_id, count(*)) FROM orders GROUP BY o_id HAVING count(*) > 1",
    },
    Rule {
        holds: "an order's sub-total is its lines less the discount",
        table: "orders",
        exceptions: "SELECT format('order %s: %s, lines %s', o_id, o_sub_total, due) FROM orders, \
            (SELECT ol_o_id, round(sum(ol_cost * ol_qty) * (1 - max(ol_discount)), 2) AS due FROM order_line GROUP BY ol_o_id) \
            AS counted WHERE ol_o_id = o_id AND o_sub_total <> due",
    },
    Rule {
        holds: "an order's tax is 8.25 % of its sub-total",
        table: "orders",
        exceptions: "SELECT format('order %s: %s of %s', o_id, o_tax, o_sub_total) FROM orders \
            WHERE o_tax <> round(o_sub_total * 0.0825, 2)",
    },
    Rule {
        holds: "an order's total adds tax and shipping, 3.00 and 1.00 a copy",
        table: "orders",
        exceptions: "SELECT format('order %s: %s', o_id, o_total) FROM orders, \
            (SELECT ol_o_id, sum(ol_qty) AS copies FROM order_line GROUP BY ol_o_id) AS counted \
            WHERE ol_o_id = o_id AND o_total <> o_sub_total + o_tax + 3 + copies",
    },
    Rule {
        holds: "an order has lines, numbered from 1",
        table: "orders",
        exceptions: "SELECT format('order %s', o_id) FROM orders LEFT JOIN \
            (SELECT ol_o_id, count(*) AS found, min(ol_id) AS lowest, max(ol_id) AS highest FROM order_line GROUP BY ol_o_id) \
            AS counted ON ol_o_id = o_id WHERE found IS NULL OR lowest <> 1 OR highest <> found",
    },
    Rule {
        holds: "an order is paid once, by what it comes to",
        table: "orders",
        exceptions: "SELECT format('order %s: %s payments', o_id, count(cx_o_id)) FROM orders LEFT JOIN cc_xacts \
            ON cx_o_id = o_id GROUP BY o_id, o_total HAVING count(cx_o_id) <> 1 OR max(cx_xact_amt) <> o_total",
    },
    Rule {
        holds: "a payment is for an order",
        table: "cc_xacts",
        exceptions: "SELECT format('payment of order %s', cx_o_id) FROM cc_xacts \
            WHERE NOT EXISTS (SELECT 1 FROM orders WHERE o_id = cx_o_id)",
    },
    Rule {
        holds: "an order is a customer's, and its addresses exist",
        table: "orders",
        exceptions: "SELECT format('order %s', o_id) FROM orders LEFT JOIN customer ON c_id = o_c_id LEFT JOIN address AS bill \
            ON bill.addr_id = o_bill_addr_id LEFT JOIN address AS ship ON ship.addr_id = o_ship_addr_id \
            WHERE c_id IS NULL OR bill.addr_id IS NULL OR ship.addr_id IS NULL",
    },
    Rule {
        holds: "a line is of an order and a book, with a copy at least",
        table: "order_line",
        exceptions: "SELECT format('order %s, line %s: %s copies of book %s', ol_o_id, ol_id, ol_qty, ol_i_id) FROM order_line \
            LEFT JOIN orders ON o_id = ol_o_id LEFT JOIN item ON i_id = ol_i_id \
            WHERE o_id IS NULL OR i_id IS NULL OR ol_qty <= 0",
    },
    Rule {
        holds: "an order's lines have one discount, of 0 to 50 %",
        table: "orders",
        exceptions: "SELECT format('order %s', ol_o_id) FROM order_line GROUP BY ol_o_id \
            HAVING min(ol_discount) <> max(ol_discount) OR min(ol_discount) < 0 OR max(ol_discount) > 0.5",
    },
    Rule {
        holds: "a customer has a name of its own, and an address",
        table: "customer",
        exceptions: "SELECT format('customer %s', max(c_id)) FROM customer LEFT JOIN address ON addr_id = c_addr_id \
            GROUP BY c_uname HAVING count(*) > 1 OR count(addr_id) <> count(*)",
    },
    Rule {
        holds: "a cart's lines are books of a cart, 1 to 99 copies",
        table: "shopping_cart_line",
        exceptions: "SELECT format('cart %s: %s copies of book %s', scl_sc_id, scl_qty, scl_i_id) FROM shopping_cart_line \
            LEFT JOIN shopping_cart ON sc_id = scl_sc_id LEFT JOIN item ON i_id = scl_i_id \
            WHERE sc_id IS NULL OR i_id IS NULL OR scl_qty NOT BETWEEN 1 AND 99",
    },
];

/// Checks all rules on one snapshot, and prints a table.
///
/// # Errors
///
/// If a rule doesn't hold, there is no shop in the database, or it can't be asked.
pub async fn run(options: Options) -> Result<(), Error> {
    let failed = || Error::database("checking the shop");
    let connecting = Connection::open(&options.database).await;
    let database = connecting.map_err(Error::database("connecting to the database"))?;
    let (begin, schema) = if database.is_mariadb() {
        ("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY", "DATABASE()")
    } else {
        ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "ANY (current_schemas(false))")
    };
    database.batch(begin).await.map_err(failed())?;
    let there = format!(
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = {schema} AND \
         table_name = '{POPULATION}'"
    );
    if database.rows(&there, &[], false).await.map_err(failed())?.is_empty() {
        return Err(Error::Empty);
    }
    let population = database.rows("SELECT orders FROM population", &[], false).await.map_err(failed())?;
    let filled: i32 = population.first().ok_or(Error::Empty)?.try_get(0).map_err(failed())?;
    let mut broken = 0;
    println!("{:<64} {:>9} {:>9}", "rule", "rows", "wrong");
    for rule in &RULES {
        let (rows, wrong, named) = look(&database, rule).await.map_err(failed())?;
        println!("{:<64} {rows:>9} {wrong:>9}", rule.holds);
        for exception in &named {
            println!("    {exception}");
        }
        if wrong > named.len() as i64 {
            println!("    and {} more", wrong - named.len() as i64);
        }
        broken += usize::from(wrong > 0);
    }
    let placed = "SELECT count(*) FROM orders WHERE o_id > $1";
    let placed = number(&database, placed, &[Parameter::Int(&filled)]).await.map_err(failed())?;
    println!("{placed} orders were placed since the shop was filled");
    if broken == 0 { Ok(()) } else { Err(Error::Unbalanced(broken)) }
}

/// How many rows a rule is about, how many are exceptions, and some of those.
async fn look(database: &Connection, rule: &Rule) -> Result<(i64, i64, Vec<String>), DatabaseError> {
    let Rule { table, exceptions, .. } = rule;
    let rows = number(database, &format!("SELECT count(*) FROM {table}"), &[]).await?;
    let sql = format!("SELECT wrong.*, count(*) OVER () FROM ({exceptions}) AS wrong LIMIT {NAMED}");
    let found = database.rows(&sql, &[], false).await?;
    let wrong = found.first().map_or(Ok(0), |row| row.try_get(1))?;
    Ok((rows, wrong, found.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?))
}

async fn number(database: &Connection, sql: &str, values: &[Parameter<'_>]) -> Result<i64, DatabaseError> {
    let rows = database.rows(sql, values, false).await?;
    rows.first().ok_or(DatabaseError::Column(0))?.try_get(0)
}
