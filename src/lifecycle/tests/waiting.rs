//! The sentences that are made of lists.

use super::super::waiting::Waiting;

#[test]
fn a_long_list_is_cut_and_says_by_how_much() {
    let users = |count: usize| Waiting::UsersLoggedIn(vec!["ä".to_owned(); count]).to_string();
    assert_eq!(users(0), "users are logged in: ");
    assert_eq!(users(8), format!("users are logged in: {}", ["ä"; 8].join(", ")));
    assert_eq!(users(10), format!("{} and 2 more", users(8)));
}
