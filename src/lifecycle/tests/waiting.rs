//! The sentences that are made of lists.

use super::super::waiting::Waiting;

#[test]
fn a_long_list_is_cut_and_says_by_how_much() {
    let users = |count: usize| Waiting::UsersLoggedIn(vec!["ä".to_owned(); count]).to_string();
    assert_eq!(users(0), "users are logged in: ");
    assert_eq!(users(8), format!("users are logged in: {}", ["ä"; 8].join(", ")));
    assert_eq!(users(10), format!("{} and 2 more", users(8)));
}

#[test]
fn a_slot_elsewhere_is_told_with_the_id_on_both_sides() {
    let told = |held: &str, configured: Option<&str>| {
        let configured = configured.map(str::to_owned);
        Waiting::SlotElsewhere { held: held.to_owned(), configured }.to_string()
    };
    let (named, unnamed) = ("http://a (group g) as one", "http://a (group g)");
    let (may, but) = ("a slot may be held at", "but the configuration names");
    let own = "as this machine's own id";
    assert_eq!(told(named, Some(unnamed)), format!("{may} {named}, {but} {unnamed} {own}"));
    assert_eq!(told(unnamed, Some(named)), format!("{may} {unnamed} {own}, {but} {named}"));
    assert_eq!(told(named, None), format!("{may} {named}, {but} no slot server"));
}
