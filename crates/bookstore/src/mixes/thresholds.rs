//! The transition matrices of TPC-W 1.8 (clause 5.2.2), as thresholds. Each page has a row of possible next
//! pages with rising thresholds. A number is drawn from `1..=9999`; the next page is the first one whose
//! threshold is at least that number.
//!
//! Source: the figures of the public Java implementation (PHARM, University of Wisconsin-Madison). Its
//! shopping matrix has a misprint: 9992 instead of 9552 from the cart to the first page. Two other public
//! implementations have 9552. With it the pages' shares are the published ones (within 0.004 percentage
//! points); with 9992 they are off by up to 0.45 points.

use crate::interaction::Interaction::{
    self, AdminConfirm as ADMC, AdminRequest as ADMR, BestSellers as BESS, BuyConfirm as BUYC,
    BuyRequest as BUYR, CustomerRegistration as CREG, Home as HOME, NewProducts as NEWP,
    OrderDisplay as ORDD, OrderInquiry as ORDI, ProductDetail as PROD, SearchRequest as SREQ,
    SearchResults as SRES, ShoppingCart as SHOP,
};

/// The possible next pages of one page, with rising thresholds; the last threshold is [`LAST`].
pub(super) type Row = &'static [(Interaction, u16)];

/// The last threshold of every row.
pub(super) const LAST: u16 = 9_999;

/// The browsing mix: 95 of 100 pages browse. Rows in the order of [`Interaction::ALL`].
#[rustfmt::skip]
pub(super) const BROWSING: [Row; 14] = [
    /* HOME */ &[(BESS, 3_792), (NEWP, 7_585), (ORDI, 7_688), (SREQ, 9_559), (SHOP, 9_999)],
    /* NEWP */ &[(HOME, 299), (PROD, 9_867), (SREQ, 9_941), (SHOP, 9_999)],
    /* BESS */ &[(HOME, 4_607), (PROD, 5_259), (SREQ, 9_942), (SHOP, 9_999)],
    /* PROD */ &[(ADMR, 47), (HOME, 8_346), (PROD, 9_749), (SREQ, 9_890), (SHOP, 9_999)],
    /* SREQ */ &[(HOME, 788), (SRES, 9_955), (SHOP, 9_999)],
    /* SRES */ &[(HOME, 3_674), (PROD, 9_868), (SREQ, 9_942), (SHOP, 9_999)],
    /* SHOP */ &[(CREG, 4_099), (HOME, 8_883), (SHOP, 9_999)],
    /* CREG */ &[(BUYR, 9_145), (HOME, 9_619), (SREQ, 9_999)],
    /* BUYR */ &[(BUYC, 9_199), (HOME, 9_595), (SHOP, 9_999)],
    /* BUYC */ &[(HOME, 342), (SREQ, 9_999)],
    /* ORDI */ &[(HOME, 523), (ORDD, 8_856), (SREQ, 9_999)],
    /* ORDD */ &[(HOME, 802), (SREQ, 9_999)],
    /* ADMR */ &[(ADMC, 8_999), (HOME, 9_999)],
    /* ADMC */ &[(HOME, 9_877), (SREQ, 9_999)],
];

/// The shopping mix: 80 of 100 pages browse. Rows in the order of [`Interaction::ALL`].
#[rustfmt::skip]
pub(super) const SHOPPING: [Row; 14] = [
    /* HOME */ &[(BESS, 3_124), (NEWP, 6_249), (ORDI, 6_718), (SREQ, 7_026), (SHOP, 9_999)],
    /* NEWP */ &[(HOME, 156), (PROD, 9_735), (SREQ, 9_784), (SHOP, 9_999)],
    /* BESS */ &[(HOME, 167), (PROD, 472), (SREQ, 9_927), (SHOP, 9_999)],
    /* PROD */ &[(ADMR, 58), (HOME, 832), (PROD, 1_288), (SREQ, 8_603), (SHOP, 9_999)],
    /* SREQ */ &[(HOME, 635), (SRES, 9_135), (SHOP, 9_999)],
    /* SRES */ &[(HOME, 2_657), (PROD, 9_294), (SREQ, 9_304), (SHOP, 9_999)],
    /* SHOP */ &[(CREG, 2_585), (HOME, 9_552), (SHOP, 9_999)],
    /* CREG */ &[(BUYR, 8_666), (HOME, 8_760), (SREQ, 9_999)],
    /* BUYR */ &[(BUYC, 4_614), (HOME, 6_546), (SHOP, 9_999)],
    /* BUYC */ &[(HOME, 84), (SREQ, 9_999)],
    /* ORDI */ &[(HOME, 72), (ORDD, 8_872), (SREQ, 9_999)],
    /* ORDD */ &[(HOME, 69), (SREQ, 9_999)],
    /* ADMR */ &[(ADMC, 8_999), (HOME, 9_999)],
    /* ADMC */ &[(HOME, 9_952), (SREQ, 9_999)],
];

/// The ordering mix: half of the pages order. Rows in the order of [`Interaction::ALL`].
#[rustfmt::skip]
pub(super) const ORDERING: [Row; 14] = [
    /* HOME */ &[(BESS, 499), (NEWP, 999), (ORDI, 1_269), (SREQ, 1_295), (SHOP, 9_999)],
    /* NEWP */ &[(HOME, 504), (PROD, 9_942), (SREQ, 9_976), (SHOP, 9_999)],
    /* BESS */ &[(HOME, 1), (PROD, 333), (SREQ, 9_998), (SHOP, 9_999)],
    /* PROD */ &[(ADMR, 99), (HOME, 3_750), (PROD, 5_621), (SREQ, 6_341), (SHOP, 9_999)],
    /* SREQ */ &[(HOME, 815), (SRES, 9_815), (SHOP, 9_999)],
    /* SRES */ &[(HOME, 486), (PROD, 7_817), (SREQ, 9_998), (SHOP, 9_999)],
    /* SHOP */ &[(CREG, 9_499), (HOME, 9_918), (SHOP, 9_999)],
    /* CREG */ &[(BUYR, 9_899), (HOME, 9_901), (SREQ, 9_999)],
    /* BUYR */ &[(BUYC, 7_999), (HOME, 9_453), (SHOP, 9_999)],
    /* BUYC */ &[(HOME, 2), (SREQ, 9_999)],
    /* ORDI */ &[(HOME, 1_168), (ORDD, 9_968), (SREQ, 9_999)],
    /* ORDD */ &[(HOME, 9_939), (SREQ, 9_999)],
    /* ADMR */ &[(ADMC, 8_999), (HOME, 9_999)],
    /* ADMC */ &[(HOME, 8_348), (SREQ, 9_999)],
];
