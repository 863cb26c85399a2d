//! The simulated shops: the demo's, and one as large as that of the publication's chapter 4.

use super::shop::Scene;

/// The demo's shop, with the faults of `uview demo` at its full pace, then those of one operation.
pub static DEMO: Scene = Scene {
    services: &["frontend", "cart", "catalogue", "payment", "store"],
    routes: &demo::ROUTES,
    plan: &demo::PLAN,
};

mod demo {
    use crate::reproduce::hooks::faults::{ANY, Kind, PlannedFault};
    use crate::reproduce::hooks::shop::{Route, Service, node};

    const FRONTEND: Service = 0;
    const CART: Service = 1;
    const CATALOGUE: Service = 2;
    const PAYMENT: Service = 3;
    const STORE: Service = 4;

    pub(super) const ROUTES: [Route; 5] = [
        (40.0, &[node(FRONTEND, "GET /list", 0, 2.0), node(CART, "View", 0, 1.5), node(CATALOGUE, "List", 0, 3.0)]),
        (20.0, &[node(FRONTEND, "GET /search", 0, 2.0), node(CATALOGUE, "Search", 0, 4.0)]),
        (15.0, &[node(FRONTEND, "POST /cart", 0, 1.5), node(CATALOGUE, "Item", 0, 1.5), node(CART, "Add", 0, 2.0)]),
        (
            15.0,
            &[
                node(FRONTEND, "POST /buy", 0, 2.5),
                node(CART, "Checkout", 0, 2.0),
                node(PAYMENT, "Charge", 0, 4.0),
                node(STORE, "Write", 2, 3.0),
            ],
        ),
        (10.0, &[node(FRONTEND, "GET /orders", 0, 1.5), node(PAYMENT, "History", 0, 2.5), node(STORE, "Read", 1, 4.0)]),
    ];

    pub(super) const PLAN: [PlannedFault; 8] = [
        ("cpu hog (any service)", Kind::CpuHog, ANY, None, 8),
        ("latency (store)", Kind::Latency, STORE, None, 8),
        ("errors (payment)", Kind::Errors, PAYMENT, None, 8),
        ("leak, then slow (catalogue)", Kind::Leak, CATALOGUE, None, 20),
        ("hang (payment)", Kind::Hang, PAYMENT, None, 10),
        ("latency of one operation (payment, Charge)", Kind::Latency, PAYMENT, Some("Charge"), 8),
        ("errors of one operation (catalogue, Search)", Kind::Errors, CATALOGUE, Some("Search"), 8),
        ("latency of one operation (cart, Add)", Kind::Latency, CART, Some("Add"), 8),
    ];
}

/// Eleven services that call each other like those of Online Boutique, with a fault of 30 s every two minutes.
pub static CHAPTER: Scene = Scene { services: &chapter::SERVICES, routes: &chapter::ROUTES, plan: &chapter::PLAN };

mod chapter {
    use crate::reproduce::hooks::faults::{ANY, Kind, PlannedFault};
    use crate::reproduce::hooks::shop::{Node, Route, Service, node};

    pub(super) const SERVICES: [&str; 11] = [
        "frontend",
        "ad",
        "cart",
        "catalogue",
        "checkout",
        "currency",
        "email",
        "payment",
        "recommendation",
        "redis",
        "shipping",
    ];
    const FRONTEND: Service = 0;
    const AD: Service = 1;
    const CART: Service = 2;
    const CATALOGUE: Service = 3;
    const CHECKOUT: Service = 4;
    const CURRENCY: Service = 5;
    const EMAIL: Service = 6;
    const PAYMENT: Service = 7;
    const RECOMMENDATION: Service = 8;
    const REDIS: Service = 9;
    const SHIPPING: Service = 10;

    const fn read_cart(caller: usize) -> Node {
        node(CART, "GetCart", caller, 1.0)
    }

    const fn read_redis(caller: usize) -> Node {
        node(REDIS, "HGET", caller, 0.5)
    }

    pub(super) const ROUTES: [Route; 6] = [
        (
            5.0,
            &[
                node(FRONTEND, "GET /", 0, 2.0),
                node(CURRENCY, "GetSupportedCurrencies", 0, 0.6),
                node(CATALOGUE, "ListProducts", 0, 2.5),
                read_cart(0),
                read_redis(3),
                node(AD, "GetAds", 0, 1.5),
            ],
        ),
        (10.0, &[node(FRONTEND, "POST /setCurrency", 0, 1.0), node(CURRENCY, "GetSupportedCurrencies", 0, 0.6)]),
        (
            53.0,
            &[
                node(FRONTEND, "GET /product", 0, 2.0),
                node(CATALOGUE, "GetProduct", 0, 1.5),
                node(CURRENCY, "Convert", 0, 0.6),
                read_cart(0),
                read_redis(3),
                node(RECOMMENDATION, "ListRecommendations", 0, 2.0),
                node(CATALOGUE, "ListProducts", 5, 2.5),
                node(AD, "GetAds", 0, 1.5),
            ],
        ),
        (
            10.0,
            &[
                node(FRONTEND, "POST /cart", 0, 1.5),
                node(CATALOGUE, "GetProduct", 0, 1.5),
                node(CART, "AddItem", 0, 1.5),
                node(REDIS, "HSET", 2, 0.7),
            ],
        ),
        (
            16.0,
            &[
                node(FRONTEND, "GET /cart", 0, 2.0),
                read_cart(0),
                read_redis(1),
                node(RECOMMENDATION, "ListRecommendations", 0, 2.0),
                node(CATALOGUE, "ListProducts", 3, 2.5),
                node(SHIPPING, "GetQuote", 0, 1.5),
                node(CURRENCY, "Convert", 0, 0.6),
            ],
        ),
        (
            6.0,
            &[
                node(FRONTEND, "POST /cart/checkout", 0, 2.0),
                node(CHECKOUT, "PlaceOrder", 0, 3.0),
                read_cart(1),
                read_redis(2),
                node(CATALOGUE, "GetProduct", 1, 1.5),
                node(CURRENCY, "Convert", 1, 0.6),
                node(SHIPPING, "ShipOrder", 1, 2.0),
                node(PAYMENT, "Charge", 1, 4.0),
                node(EMAIL, "SendOrderConfirmation", 1, 3.0),
            ],
        ),
    ];

    pub(super) const PLAN: [PlannedFault; 8] = [
        ("cpu hog (any service)", Kind::CpuHog, ANY, None, 30),
        ("cpu hog (recommendation)", Kind::CpuHog, RECOMMENDATION, None, 30),
        ("latency (shipping)", Kind::Latency, SHIPPING, None, 30),
        ("latency (currency)", Kind::Latency, CURRENCY, None, 30),
        ("errors (payment)", Kind::Errors, PAYMENT, None, 30),
        ("errors (cart)", Kind::Errors, CART, None, 30),
        ("leak, then slow (catalogue)", Kind::Leak, CATALOGUE, None, 30),
        ("hang (email)", Kind::Hang, EMAIL, None, 30),
    ];
}
