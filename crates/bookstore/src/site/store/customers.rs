//! Customers and their addresses.

use super::super::failure::Failure;
use super::super::session::Session;
use super::super::shop::{int, text};
use crate::database::Row;
use crate::names;

/// A customer with its address.
#[derive(Clone, Debug)]
pub(in super::super) struct Customer {
    pub(in super::super) id: i32,
    pub(in super::super) user_name: String,
    pub(in super::super) first_name: String,
    pub(in super::super) last_name: String,
    pub(in super::super) phone: String,
    pub(in super::super) email: String,
    /// In per cent.
    pub(in super::super) discount: i32,
    pub(in super::super) address: Address,
}

/// An address.
#[derive(Clone, Debug)]
pub(in super::super) struct Address {
    pub(in super::super) street1: String,
    pub(in super::super) street2: String,
    pub(in super::super) city: String,
    pub(in super::super) state: String,
    pub(in super::super) zip: String,
    /// By its name.
    pub(in super::super) country: String,
}

/// The data of a new customer.
#[derive(Clone, Debug)]
pub(in super::super) struct NewCustomer {
    pub(in super::super) first_name: String,
    pub(in super::super) last_name: String,
    pub(in super::super) address: Address,
    pub(in super::super) phone: String,
    pub(in super::super) email: String,
    /// `YYYY-MM-DD`, and such a day exists.
    pub(in super::super) birth_date: String,
    pub(in super::super) data: String,
}

const CUSTOMER: &str = "SELECT c_id, c_uname, c_fname, c_lname, c_phone, c_email, (c_discount * 100)::int, addr_street1, \
    addr_street2, addr_city, addr_state, addr_zip, co_name, c_passwd FROM customer, address, country \
    WHERE c_addr_id = addr_id AND addr_co_id = co_id AND c_uname = $1 ORDER BY c_id LIMIT 1";

/// A customer's first and last name (`getName`).
pub(in super::super) async fn name(db: &Session, id: i32) -> Result<Option<(String, String)>, Failure> {
    let row = db.row("SELECT c_fname, c_lname FROM customer WHERE c_id = $1", &[int(&id)]).await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
}

/// The name by which a customer signs in.
pub(in super::super) async fn user_name(db: &Session, id: i32) -> Result<Option<String>, Failure> {
    let row = db.row("SELECT c_uname FROM customer WHERE c_id = $1", &[int(&id)]).await?;
    row.map(|row| Ok(row.try_get(0)?)).transpose()
}

/// Checks a password (`GetPassword`).
pub(in super::super) async fn check_password(
    db: &Session,
    user_name: &str,
    password: &str,
) -> Result<(), Failure> {
    let row = db.row("SELECT c_passwd FROM customer WHERE c_uname = $1", &[text(&user_name)]).await?;
    let stored: String = row.ok_or(Failure::WrongPassword)?.try_get(0)?;
    if stored == password { Ok(()) } else { Err(Failure::WrongPassword) }
}

/// A customer who signs in: its session begins anew, for two hours.
pub(in super::super) async fn sign_in(
    db: &Session,
    user_name: &str,
    password: &str,
) -> Result<Customer, Failure> {
    let row = db.row(CUSTOMER, &[text(&user_name)]).await?.ok_or(Failure::WrongPassword)?;
    if row.try_get::<String>(13)? != password {
        return Err(Failure::WrongPassword);
    }
    let customer = customer(&row)?;
    let sql = "UPDATE customer SET c_last_login = CURRENT_DATE, c_login = CURRENT_TIMESTAMP, \
        c_expiration = CURRENT_TIMESTAMP + interval '2 hours' WHERE c_id = $1";
    db.execute(sql, &[int(&customer.id)]).await?;
    Ok(customer)
}

/// Registers a customer, with a discount between 0 and 50 per cent as luck has it.
pub(in super::super) async fn register(
    db: &Session,
    new: &NewCustomer,
    discount: i32,
) -> Result<Customer, Failure> {
    let address = enter_address(db, &new.address).await?;
    let id = db.number("SELECT nextval('customer_ids')::int", &[]).await?;
    let user_name = names::user_name(id.unsigned_abs());
    let password = names::password(id.unsigned_abs());
    let sql = "INSERT INTO customer (c_id, c_uname, c_passwd, c_fname, c_lname, c_addr_id, c_phone, c_email, c_since, \
        c_last_login, c_login, c_expiration, c_discount, c_balance, c_ytd_pmt, c_birthdate, c_data) VALUES ($1, $2, $3, $4, \
        $5, $6, $7, $8, CURRENT_DATE, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP + interval '2 hours', \
        $9 * 0.01, 0, 0, $10::text::date, $11)";
    db.execute(
        sql,
        &[
            int(&id),
            text(&user_name.as_str()),
            text(&password.as_str()),
            text(&new.first_name.as_str()),
            text(&new.last_name.as_str()),
            int(&address),
            text(&new.phone.as_str()),
            text(&new.email.as_str()),
            int(&discount),
            text(&new.birth_date.as_str()),
            text(&new.data.as_str()),
        ],
    )
    .await?;
    Ok(Customer {
        id,
        user_name,
        first_name: new.first_name.clone(),
        last_name: new.last_name.clone(),
        phone: new.phone.clone(),
        email: new.email.clone(),
        discount,
        address: new.address.clone(),
    })
}

/// The id of an address, which is stored if it isn't yet (`enterAddress`).
pub(in super::super) async fn enter_address(db: &Session, address: &Address) -> Result<i32, Failure> {
    let country =
        db.row("SELECT co_id FROM country WHERE co_name = $1", &[text(&address.country.as_str())]).await?;
    let country: i32 =
        country.ok_or_else(|| Failure::Nonsense("We don't know this country.".to_owned()))?.try_get(0)?;
    let fields =
        [&address.street1, &address.street2, &address.city, &address.state, &address.zip].map(String::as_str);
    let [street1, street2, city, state, zip] = &fields;
    let parameters = [text(street1), text(street2), text(city), text(state), text(zip), int(&country)];
    let known = "SELECT addr_id FROM address WHERE addr_street1 = $1 AND addr_street2 = $2 AND addr_city = $3 AND \
        addr_state = $4 AND addr_zip = $5 AND addr_co_id = $6 LIMIT 1";
    if let Some(row) = db.row(known, &parameters).await? {
        return Ok(row.try_get(0)?);
    }
    let sql = "INSERT INTO address (addr_id, addr_street1, addr_street2, addr_city, addr_state, addr_zip, addr_co_id) \
        VALUES (nextval('address_ids'), $1, $2, $3, $4, $5, $6) RETURNING addr_id";
    db.number(sql, &parameters).await
}

fn customer(row: &Row) -> Result<Customer, Failure> {
    Ok(Customer {
        id: row.try_get(0)?,
        user_name: row.try_get(1)?,
        first_name: row.try_get(2)?,
        last_name: row.try_get(3)?,
        phone: row.try_get(4)?,
        email: row.try_get(5)?,
        discount: row.try_get(6)?,
        address: Address {
            street1: row.try_get(7)?,
            street2: row.try_get(8)?,
            city: row.try_get(9)?,
            state: row.try_get(10)?,
            zip: row.try_get(11)?,
            country: row.try_get(12)?,
        },
    })
}
