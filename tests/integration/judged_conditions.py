"""Rows of many types, and conditions on them that delta-spark judges."""

from typing import Final

COLUMNS: Final = (
    "k long, p string, i int, b tinyint, d double, f float, n decimal(10,2), s string, t boolean, "
    "day date, at timestamp, ntz timestamp_ntz, bin binary, st struct<a: int, b: string>, "
    "arr array<int>, m map<string, int>"
)

ROWS: Final = """
SELECT id AS k,
  CASE id % 3 WHEN 0 THEN 'x/ y' WHEN 1 THEN 'Z' END AS p,
  IF(id % 5 = 4, NULL, cast(id - 3 AS int)) AS i,
  IF(id = 7, NULL, cast(id * 10 - 60 AS tinyint)) AS b,
  CASE id WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN 0.0D WHEN 3 THEN NULL
    WHEN 4 THEN double('Infinity') WHEN 5 THEN 0.1D ELSE id / 4.0D END AS d,
  CASE id WHEN 0 THEN float('NaN') WHEN 3 THEN NULL WHEN 5 THEN float(0.1)
    ELSE cast(id / 4.0 AS float) END AS f,
  IF(id = 2, NULL, cast(id - 1.25 AS decimal(10,2))) AS n,
  element_at(array('abc', 'ABC', '', NULL, '12', ' 3 ', 'true', '2024-01-05', 'ab%_c', 'ä€😀',
    'it''s', '1.50'), cast(id + 1 AS int)) AS s,
  CASE id % 3 WHEN 0 THEN true WHEN 1 THEN false END AS t,
  IF(id = 8, NULL, date_add(date'2024-01-01', cast(id AS int))) AS day,
  IF(id = 9, NULL, timestamp'2024-01-01 12:00:00.123456' + make_interval(0, 0, 0, cast(id AS int)))
    AS at,
  IF(id = 9, NULL, timestamp_ntz'2024-01-01 00:00:00' + make_interval(0, 0, 0, cast(id AS int)))
    AS ntz,
  IF(id = 1, NULL, cast(concat('b', id) AS binary)) AS bin,
  IF(id = 5, NULL, named_struct('a', IF(id = 6, NULL, cast(id AS int)), 'b', concat('s', id)))
    AS st,
  IF(id = 6, NULL, slice(array(1, NULL, 3), 1, cast(id % 4 AS int))) AS arr,
  IF(id = 4, NULL, map('a', cast(id AS int))) AS m
FROM range(0, 12, 1, 4)
"""

# A condition a line.
CONDITIONS: Final = [
    line.strip()
    for line in r"""
true
false
NULL
t
NOT t
!t
t = true
t = false
t != true
t <=> NULL
t IS TRUE
t IS NOT TRUE
t IS FALSE
t IS NULL
t = 'true'
t = 1
t > false
t IN (true)
i = 3
i == 3
3 = i
i <> 3
i != 3
i < 0
0 > i
i <= 2.5
i = 2.0
i = 2.5
i < 2.5D
i = '3'
i = ' 3 '
i > '2'
i = 3L
i = 3S
i = 3Y
i = 3.0BD
i = 3e0
i = -1
i = - -1
i = +1
i = 3000000000
i < 3000000000
i != 3000000000
i = 1 + 2
i + 1 = 4
i % 2 = 0
i DIV 2 = 1
i & 1 = 1
-i = 3
abs(i) = 3
i = NULL
i != NULL
i <=> NULL
i <=> 3
NOT (i <=> 3)
NOT (i = 3)
NOT (i = NULL)
i IS NULL
i IS NOT NULL
NOT i IS NULL
isnull(i)
isnotnull(i)
i IS DISTINCT FROM 3
i IS NOT DISTINCT FROM NULL
i IN (1, 3)
i IN (1, NULL)
i NOT IN (1, 3)
i NOT IN (1, NULL)
NOT i IN (1, NULL)
i IN (NULL)
i IN (1, '2')
i IN (1, 2.5)
i IN (1, k)
i BETWEEN 1 AND 3
i NOT BETWEEN 1 AND 3
i BETWEEN 3 AND 1
i BETWEEN NULL AND 3
NOT i BETWEEN NULL AND 3
i BETWEEN 0.5 AND 2.5
i = k - 3
i < b
i = 3 OR s = 'abc'
i = 3 OR NULL
i = 3 AND NULL
NOT (i = 3 OR NULL)
NOT (i > 1 AND s IS NULL)
NOT (i > 1 OR t)
i > 1 AND (t OR d > 1)
(i > 3) = t
(i > 3) IS TRUE
(i > 3) IS NULL
i > 1 = true
b = 300
b < 300
b = -10
b = 10.0
b * 2 > 50
k = 5 AND p = 'Z'
p = 'x/ y'
p IS NULL
p IS NULL OR p = 'Z'
p != 'Z'
p <=> NULL
p IN ('Z', NULL)
NOT p IN ('Z')
p LIKE 'x%'
p > 'Y'
upper(p) = 'Z'
p = 'Z' AND i > 0
p = 'Z' OR i > 5
coalesce(p, 'Z') = 'Z'
d = double('NaN')
d = 'NaN'
d != 'NaN'
d > 2
d < 1
d >= 0
d = 0
d = -0.0
d <=> 0.0
d < 0.0
d > -0.0
d = 0.1
d IN (0.1, 0)
d NOT IN (0.1, 0)
d BETWEEN 0 AND 1
d > 'Infinity'
d = double('Infinity')
d = 1e1 / 4
isnan(d)
NOT (d > 1)
NOT (d <= 1)
NOT (d = 1.5)
f = 0.1
f = 0.1F
f = float(0.1)
f > 1.5
f = 1.5
f != 0.1
f < 0.2
f = d
NOT (f < 1)
n = 1.75
n = 1.750
n = 1.755
n > 1.755
n < 1.755
n != 1.755
n = '1.75'
n > '1.755'
n = 1.75D
n <= 2
n = -1.25
n IN (1.75, 2.75)
n IN (1.755)
n BETWEEN 1.7 AND 2.8
n > 100000000000
n < 100000000000
n = i
round(n) = 2
n + 0.005 > 1.755
n <=> NULL
s = 'abc'
s = "abc"
s <=> 'ABC'
s != 'abc'
s = ''
s = 'it\'s'
s = r'ab%_c'
s = '\u00e4\u20ac\U0001F600'
s > 'ab'
s < 'ä'
s >= 'ä€😀'
s = 12
s = 12.0
s > 1
s = true
s = date'2024-01-05'
s < date'2024-02-01'
s = 1.5
s IN ('abc', 'ABC')
s IN (12, 13)
s LIKE 'ab%'
s LIKE 'ab\%\_c'
s LIKE 'ab!%!_c' ESCAPE '!'
s ILIKE 'AB%'
s NOT LIKE 'a%'
s LIKE ANY ('a%', 'A%')
s LIKE ALL ('a%', '%c')
s RLIKE '^[a-z]+$'
s REGEXP '[0-9]'
NOT s LIKE 'a%'
length(s) > 3
lower(s) = 'abc'
trim(s) = '3'
substr(s, 1, 1) = 'a'
s || 'x' = 'abcx'
concat(s, k) = 'abc0'
startswith(s, 'a')
contains(s, 'b')
s BETWEEN 'a' AND 'b'
s COLLATE UTF8_LCASE = 'abc'
instr(s, 'c') = 3
regexp_replace(s, '[a-z]', '') = ''
split(s, '%')[0] = 'ab'
ascii(s) = 97
cast(s AS int) = 12
try_cast(s AS int) = 12
cast(s AS boolean)
cast(i AS string) = '3'
cast(d AS int) = 2
cast(day AS string) = '2024-01-05'
cast(n AS int) = 1
cast(at AS date) = date'2024-01-03'
day = '2024-01-05'
day = '2024-1-5'
day = '2024-01'
day = '2024-01-05 10:00:00'
day = date'2024-01-05'
day = DATE '2024-01-05'
day > '2024-01-05'
day < timestamp'2024-01-05 00:00:01'
day = timestamp'2024-01-05 00:00:00'
day IN ('2024-01-05', date'2024-01-06')
day BETWEEN '2024-01-03' AND '2024-01-05'
day != '2024-01-05'
day = to_date('05/01/2024', 'dd/MM/yyyy')
day = 'x'
day + 1 = date'2024-01-05'
year(day) = 2024 AND month(day) = 1
dayofweek(day) = 1
day > date_sub(date'2024-01-10', 3)
day < current_date()
at = timestamp'2024-01-03 12:00:00.123456'
at = '2024-01-03 12:00:00.123456'
at > '2024-01-03'
at > '2024-01-03 12:00:00'
at >= timestamp'2024-01-03 12:00:00.123457'
at < date'2024-01-03'
at = '2024-01-03T12:00:00.123456Z'
at <= '2024-01-03 13:00:00.123456+01:00'
at > '2024'
at > '2024-1-3 1:2:3'
at <=> NULL
at IN ('2024-01-03 12:00:00.123456')
at BETWEEN '2024-01-02' AND '2024-01-05'
at > timestamp_ntz'2024-01-03 12:00:00'
hour(at) = 12
date_trunc('day', at) = '2024-01-03'
at > current_timestamp()
at - interval 1 day > '2024-01-05'
datediff(at, date'2024-01-01') = 3
unix_timestamp(at) > 1704300000
ntz = '2024-01-03'
ntz = timestamp_ntz'2024-01-03 00:00:00'
ntz > timestamp'2024-01-03 00:00:00'
ntz >= '2024-01-03 00:00:00'
ntz < date'2024-01-03'
ntz != '2024-01-03 00:00:00'
bin = X'6230'
bin = 'b3'
bin IS NULL
length(bin) = 3
st.a = 3
st.a IS NULL
st IS NULL
st.b = 's3'
st.b IN ('s1', 's2')
NOT (st.a = 3)
st.a > 2 AND st.b < 's5'
st = named_struct('a', 3, 'b', 's3')
ST.A = 3
`st`.`a` = 3
size(arr) = 2
size(arr) > 0
arr IS NULL
arr[0] = 1
arr[2] = 3
element_at(arr, 1) = 1
try_element_at(arr, 3) = 3
array_contains(arr, 3)
exists(arr, x -> x > 2)
forall(arr, x -> x > 0)
arr = array(1)
m['a'] = 3
m['b'] = 3
m IS NULL
map_contains_key(m, 'a')
CASE WHEN i > 3 THEN t ELSE NOT t END
CASE i WHEN 3 THEN true END
CASE WHEN i = 3 THEN 1 ELSE 0 END = 1
IF(t, i > 3, i < 3)
IF(i IS NULL, s, 'x') = 'x'
nvl(i, 0) = 0
nullif(i, 3) IS NULL
greatest(i, b) = 3
1 / i > 0.3
try_divide(1, i) > 0.3
10 % i = 1
cast(k AS tinyint) * 100Y > 0
nosuch = 1
i = 
i = 3 AND nosuch
rand(0) < 2
spark_partition_id() >= 0
hash(i) % 2 = 0
k = 3 -- a comment
/* hint */ k = 3
K = 3
i = 3 AND i = 4
i = 3 AND NOT i = 3
k > 3 AND k < 6 OR NOT (k < 9) AND s IS NOT NULL
NOT (NOT (i = 3))
NOT (p = 'Z') AND k > 2
xpath_boolean('<a/>', 'a') AND k = 1
""".splitlines()
    if line.strip()
]
