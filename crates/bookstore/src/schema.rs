//! The tables of the shop, by the names and in the order in which everybody locks them.

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    /// Addresses of customers and of deliveries.
    Address,
    /// The authors of the books.
    Author,
    /// Payments by credit card, one for each order.
    CcXacts,
    /// Countries, with their currencies.
    Country,
    /// Customers.
    Customer,
    /// Books.
    Item,
    /// The lines of orders.
    OrderLine,
    /// Orders.
    Orders,
    /// Carts.
    ShoppingCart,
    /// The lines of carts.
    ShoppingCartLine,
}

impl Table {
    /// All of them, in the order in which they are locked.
    pub const ALL: [Self; 10] = [
        Self::Address,
        Self::Author,
        Self::CcXacts,
        Self::Country,
        Self::Customer,
        Self::Item,
        Self::OrderLine,
        Self::Orders,
        Self::ShoppingCart,
        Self::ShoppingCartLine,
    ];

    /// Its name in the database, which is the specification's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Author => "author",
            Self::CcXacts => "cc_xacts",
            Self::Country => "country",
            Self::Customer => "customer",
            Self::Item => "item",
            Self::OrderLine => "order_line",
            Self::Orders => "orders",
            Self::ShoppingCart => "shopping_cart",
            Self::ShoppingCartLine => "shopping_cart_line",
        }
    }
}

/// The table of one row that says what the database was filled with; the last to be written.
pub const POPULATION: &str = "population";

/// MariaDB's table of a row for each other table: who locks the row has locked the table.
pub const TABLE_LOCK: &str = "table_lock";
