//! The scripts that run on the server.
//!
//! Every script touches the keys of one partition only, all of them named as keys. Writes that need
//! memory come before those that free it: a server without memory refuses the first write of a
//! script, and never one in the middle.

use std::sync::LazyLock;

/// A script and its hash.
pub(crate) struct Script(redis::Script, &'static str);

impl Script {
    fn new(text: &'static str) -> Self {
        Self(redis::Script::new(text), text)
    }

    pub(crate) fn hash(&self) -> &str {
        self.0.get_hash()
    }

    pub(crate) const fn text(&self) -> &str {
        self.1
    }
}

/// `KEYS`: the partition, then its indexes. `ARGV`: one letter for each index (`v` when its column
/// is volatile, `s` otherwise), the number of mutations, and for each: kind, row field, etag,
/// document, the number of volatile columns, their fields and values, and a number for each index
/// (empty: none).
///
/// Kinds: `I` must be missing, `R` must have the etag, `U` either way, `A` left alone if there, `D`
/// delete with the etag, `X` delete if there, `C` check the etag.
///
/// Answers the position (from 1) of the first mutation whose condition does not hold; 0 when all
/// was done; -1 when all was done and the partition had no row before.
pub(crate) static COMMIT: LazyLock<Script> = LazyLock::new(|| Script::new(COMMIT_TEXT));

const COMMIT_TEXT: &str = r#"
local hash, indexes = KEYS[1], #KEYS - 1
local count, at, starts, there = tonumber(ARGV[2]), 3, {}, {}
for i = 1, count do
  local kind, row = ARGV[at], redis.call('HGET', hash, ARGV[at + 1])
  local holds = true
  if kind == 'I' then holds = not row
  elseif kind == 'X' then holds = row
  elseif kind ~= 'U' and kind ~= 'A' then
    holds = row and string.match(row, '^{"etag":"([^"]*)"') == ARGV[at + 2]
  end
  if not holds then return i end
  starts[i], there[i] = at, row and true or false
  at = at + 5 + 2 * tonumber(ARGV[at + 4]) + indexes
end
local created = redis.call('EXISTS', hash) == 0
local wrote = false
for i = 1, count do
  local from = starts[i]
  local kind, field, volatile = ARGV[from], ARGV[from + 1], tonumber(ARGV[from + 4])
  if kind == 'I' or kind == 'R' or kind == 'U' or (kind == 'A' and not there[i]) then
    wrote = true
    redis.call('HSET', hash, field, ARGV[from + 3])
    if not there[i] then
      for v = 1, volatile do
        redis.call('HSET', hash, ARGV[from + 3 + 2 * v], ARGV[from + 4 + 2 * v])
      end
    end
    for x = 1, indexes do
      local number = ARGV[from + 4 + 2 * volatile + x]
      if number ~= '' and not (there[i] and string.sub(ARGV[1], x, x) == 'v') then
        redis.call('ZADD', KEYS[1 + x], number, field)
      end
    end
  end
end
for i = 1, count do
  local from = starts[i]
  local kind, field, volatile = ARGV[from], ARGV[from + 1], tonumber(ARGV[from + 4])
  if kind == 'D' or kind == 'X' then
    redis.call('HDEL', hash, field)
    for v = 1, volatile do redis.call('HDEL', hash, ARGV[from + 3 + 2 * v]) end
    for x = 1, indexes do redis.call('ZREM', KEYS[1 + x], field) end
  elseif kind == 'R' or kind == 'U' then
    for x = 1, indexes do
      if ARGV[from + 4 + 2 * volatile + x] == '' and string.sub(ARGV[1], x, x) ~= 'v' then
        redis.call('ZREM', KEYS[1 + x], field)
      end
    end
  end
end
if created and wrote then return -1 end
return 0
"#;

/// `KEYS`: the partition and, if the column is indexed, its index. `ARGV`: row field, column field,
/// value, number. Answers whether the row is there.
pub(crate) static TOUCH: LazyLock<Script> = LazyLock::new(|| Script::new(TOUCH_TEXT));

const TOUCH_TEXT: &str = r"
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
if KEYS[2] then redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1]) end
return 1
";

/// `KEYS`: the partition, then its indexes. `ARGV`: the number of volatile columns and their names;
/// then for each row its field, the field that must be unchanged, and what that must hold. Answers
/// how many rows it deleted.
pub(crate) static CLEAN_UP: LazyLock<Script> = LazyLock::new(|| Script::new(CLEAN_UP_TEXT));

const CLEAN_UP_TEXT: &str = r"
local volatile, deleted = tonumber(ARGV[1]), 0
for at = 2 + volatile, #ARGV, 3 do
  local field = ARGV[at]
  if redis.call('HGET', KEYS[1], ARGV[at + 1]) == ARGV[at + 2] and redis.call('HDEL', KEYS[1], field) == 1 then
    deleted = deleted + 1
    for v = 1, volatile do redis.call('HDEL', KEYS[1], field .. '/' .. ARGV[1 + v]) end
    for x = 2, #KEYS do redis.call('ZREM', KEYS[x], field) end
  end
end
return deleted
";
