//! Bytes as people write them down.

/// The bytes of a text: groups of hexadecimal digits, `*n` after a group for n times the group, and after `#` a comment
/// up to the end of the line.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    for token in code.flat_map(str::split_whitespace) {
        let (digits, times) = token.split_once('*').unwrap_or((token, "1"));
        let digits: Option<Vec<u8>> = digits.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        let (digits, times) = (digits.unwrap_or_default(), times.parse().unwrap_or(0));
        assert!(!digits.is_empty() && digits.len() % 2 == 0 && times > 0, "{token} is not hexadecimal");
        let group: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        bytes.extend(group.repeat(times));
    }
    bytes
}
