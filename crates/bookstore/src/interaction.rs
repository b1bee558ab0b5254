//! The fourteen interactions of TPC-W (specification 1.8, clause 2), each one page: its code, its name, and
//! where it is.

/// One of the fourteen interactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Interaction {
    /// The first page: a greeting and promotions.
    Home,
    /// The newest books of a subject.
    NewProducts,
    /// The books of a subject that sold best in the last 3,333 orders.
    BestSellers,
    /// One book.
    ProductDetail,
    /// The form of the search.
    SearchRequest,
    /// What a search found.
    SearchResults,
    /// The cart, after something was put in or its quantities were changed.
    ShoppingCart,
    /// The form in which a customer says who it is.
    CustomerRegistration,
    /// The order as it would be, with the form of payment.
    BuyRequest,
    /// The order is placed.
    BuyConfirm,
    /// The form that asks whose last order is to be shown.
    OrderInquiry,
    /// The last order of a customer.
    OrderDisplay,
    /// The form in which a book is changed.
    AdminRequest,
    /// A book is changed, and what is related to it computed anew.
    AdminConfirm,
}

impl Interaction {
    /// All of them, in the specification's order.
    pub const ALL: [Self; 14] = [
        Self::Home,
        Self::NewProducts,
        Self::BestSellers,
        Self::ProductDetail,
        Self::SearchRequest,
        Self::SearchResults,
        Self::ShoppingCart,
        Self::CustomerRegistration,
        Self::BuyRequest,
        Self::BuyConfirm,
        Self::OrderInquiry,
        Self::OrderDisplay,
        Self::AdminRequest,
        Self::AdminConfirm,
    ];

    /// The four letters by which the specification's mixes call it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Home => "HOME",
            Self::NewProducts => "NEWP",
            Self::BestSellers => "BESS",
            Self::ProductDetail => "PROD",
            Self::SearchRequest => "SREQ",
            Self::SearchResults => "SRES",
            Self::ShoppingCart => "SHOP",
            Self::CustomerRegistration => "CREG",
            Self::BuyRequest => "BUYR",
            Self::BuyConfirm => "BUYC",
            Self::OrderInquiry => "ORDI",
            Self::OrderDisplay => "ORDD",
            Self::AdminRequest => "ADMR",
            Self::AdminConfirm => "ADMC",
        }
    }

    /// Its name in the specification.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Home => "Home",
            Self::NewProducts => "New Products",
            Self::BestSellers => "Best Sellers",
            Self::ProductDetail => "Product Detail",
            Self::SearchRequest => "Search Request",
            Self::SearchResults => "Search Results",
            Self::ShoppingCart => "Shopping Cart",
            Self::CustomerRegistration => "Customer Registration",
            Self::BuyRequest => "Buy Request",
            Self::BuyConfirm => "Buy Confirm",
            Self::OrderInquiry => "Order Inquiry",
            Self::OrderDisplay => "Order Display",
            Self::AdminRequest => "Admin Request",
            Self::AdminConfirm => "Admin Confirm",
        }
    }

    /// Its path with the parameters in braces: what the site routes by, and what its statements are tagged
    /// with.
    #[must_use]
    pub fn route(self) -> &'static str {
        match self {
            Self::Home => "/",
            Self::NewProducts => "/new",
            Self::BestSellers => "/best",
            Self::ProductDetail => "/books/{id}",
            Self::SearchRequest => "/search",
            Self::SearchResults => "/search/results",
            Self::ShoppingCart => "/cart",
            Self::CustomerRegistration => "/register",
            Self::BuyRequest => "/checkout",
            Self::BuyConfirm => "/checkout/confirm",
            Self::OrderInquiry => "/orders",
            Self::OrderDisplay => "/orders/last",
            Self::AdminRequest => "/admin/books/{id}",
            Self::AdminConfirm => "/admin/books/{id}/change",
        }
    }
}
