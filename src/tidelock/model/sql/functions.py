"""Spark's built-in functions, by what they need of the rows around them.

Owns: which names are known, and what kind each is. A name that is not here is somebody's own
function: it may answer differently each time, so a query that calls it is computed anew.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


GENERATORS = _names(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack
    variant_explode variant_explode_outer
    """
)
"""Functions that give any number of rows for one."""

RANKING = _names(
    """
    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    """
)
"""Functions that only make sense over a window."""

CLOCK = _names(
    """
    curdate current_date current_time current_timestamp localtimestamp now
    """
)
"""Functions that tell the time of the query."""

RANDOM = _names(
    """
    aes_encrypt monotonically_increasing_id rand randn random randstr shuffle
    spark_partition_id uniform uuid
    """
)
"""Functions that answer differently each time they are asked."""

SURROUNDINGS = _names(
    """
    current_catalog current_database current_path current_schema current_timezone current_user
    input_file_block_length input_file_block_start input_file_name java_method
    python_worker_logs reflect session_user try_reflect user version
    """
)
"""Functions that tell about the session, the file or the machine, or run foreign code."""

WITHOUT_PARENTHESES = _names(
    """
    current_date current_path current_time current_timestamp current_user grouping__id
    session_user user
    """
)
"""Functions that a bare name calls, in quotes too, where no column of the name is at hand."""

AGGREGATES = _names(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg
    bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set corr count
    count_if count_min_sketch covar_pop covar_samp every first first_value histogram_numeric
    hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value
    listagg max max_by mean measure median min min_by mode percentile percentile_approx
    percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std stddev
    stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg
    theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg
    vector_sum
    """
)
"""Functions that give one value for many rows."""

UNSETTLED = _names(
    """
    any_value approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine first
    first_value histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float last last_value measure percentile_approx theta_intersection_agg
    theta_sketch_agg theta_union_agg tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer
    """
)
"""Aggregates whose answer depends on the order in which rows arrive."""

SCALARS = _names(
    """
    abs acos acosh add_months aes_decrypt aggregate approx_top_k_estimate array array_append
    array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_repeat
    array_size array_sort array_union arrays_overlap ascii asin asinh atan atan2
    atanh base64 bigint bin binary bit_count bit_get bit_length bitmap_bit_position
    bitmap_bucket_number bitmap_count boolean bround btrim cardinality cbrt ceil ceiling char
    char_length character_length chr coalesce collate collation concat concat_ws contains conv
    convert_timezone cos cosh cot crc32 csc date date_add date_diff date_format
    date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname
    dayofmonth dayofweek dayofyear decimal decode degrees div double e element_at elt encode
    endswith equal_null exists exp expm1 factorial filter find_in_set flatten float floor
    forall format_number format_string from_avro from_csv from_json from_protobuf from_unixtime
    from_utc_timestamp from_xml get get_json_object getbit greatest hash hex
    hll_sketch_estimate hll_union hour hypot if ifnull ilike initcap instr int is_valid_utf8
    is_valid_variant is_variant_null isnan isnotnull isnull json_array_length json_object_keys
    kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float last_day
    lcase least left len length levenshtein like ln locate log log10 log1p log2 lower lpad
    ltrim luhn_check make_date make_dt_interval make_interval make_time make_timestamp
    make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat
    map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys
    map_values map_zip_with mask md5 minute mod month monthname months_between named_struct
    nanvl negative next_day nullif nullifzero nvl nvl2 octet_length overlay parse_json
    parse_url pi pmod position positive pow power printf quarter quote radians reduce regexp
    regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace
    regexp_substr repeat replace reverse right rint rlike round rpad rtrim schema_of_avro
    schema_of_csv schema_of_json schema_of_variant schema_of_xml sec second sentences sequence
    sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice
    smallint sort_array soundex space split split_part sqrt st_asbinary st_geogfromwkb
    st_geomfromwkb st_setsrid st_srid startswith str_to_map string struct substr substring
    substring_index tan tanh theta_difference theta_intersection theta_sketch_estimate
    theta_union time time_bucket time_diff time_from_micros time_from_millis time_from_seconds
    time_to_micros time_to_millis time_to_seconds time_trunc timestamp timestamp_micros
    timestamp_millis timestamp_seconds timestampadd timestampdiff tinyint to_avro to_binary
    to_char to_csv to_date to_json
    to_number to_protobuf to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform
    transform_keys transform_values translate trim trunc try_add try_aes_decrypt try_divide
    try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz
    try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url try_subtract
    try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode
    try_validate_utf8 try_variant_get tuple_difference_double tuple_difference_integer
    tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_double tuple_union_integer tuple_union_theta_double tuple_union_theta_integer
    typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds unix_timestamp
    upper url_decode url_encode validate_utf8 variant_get vector_cosine_similarity
    vector_inner_product vector_l2_distance vector_norm vector_normalize weekday weekofyear
    width_bucket xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number
    xpath_short xpath_string xxhash64 year zeroifnull zip_with
    """
)
"""Functions of the values of one row."""

CANONICAL = {
    "any": "bool_or",
    "approx_percentile": "percentile_approx",
    "array_agg": "collect_list",
    "every": "bool_and",
    "first_value": "first",
    "last_value": "last",
    "mean": "avg",
    "some": "bool_or",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "string_agg": "listagg",
    "variance": "var_samp",
}
"""Aggregates that have a second name, and the name that is used for them."""

OF_NOTHING = {
    "approx_count_distinct": "0",
    "collect_list": "array()",
    "collect_set": "array()",
    "count": "0",
    "count_if": "0",
    "regr_count": "0",
}
"""What aggregates give for no rows at all, where that is not NULL."""

NULL_OF_NOTHING = _names(
    """
    avg bit_and bit_or bit_xor bool_and bool_or corr covar_pop covar_samp kurtosis listagg max
    max_by median min min_by mode percentile percentile_cont percentile_disc regr_avgx
    regr_avgy regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness stddev_pop
    stddev_samp sum try_avg try_sum var_pop var_samp
    """
)
"""Aggregates that give NULL for no rows at all."""

RESULT_TYPES = {"count": "BIGINT", "count_if": "BIGINT"}
"""The types of aggregates that are the same whatever they are taken of."""

OF_ARGUMENT_TYPE = frozenset({"min", "max"})
"""Aggregates that have the type of what they are taken of."""

PEERLESS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Window functions that treat rows of equal order alike."""

POSITIONAL = frozenset({"row_number", "ntile", "lag", "lead"})
"""Window functions that look at positions, whatever the frame."""

UNORDERABLE = _names(
    """
    from_avro from_csv from_json from_protobuf from_xml map map_concat map_filter
    map_from_arrays map_from_entries map_zip_with parse_json str_to_map to_variant_object
    transform_keys transform_values try_parse_json try_variant_get variant_get
    """
)
"""Functions that may give a MAP or a VARIANT, which have no order."""


NAMING = frozenset({"arrays_zip"})
"""Functions whose result has the names of the columns that they are given."""

_KNOWN = SCALARS | AGGREGATES | RANKING | GENERATORS | {"grouping", "grouping_id"}
_STOPPING = frozenset({"assert_true", "raise_error"})
_TIME_WINDOWS = frozenset({"window", "session_window", "window_time"})
REFUSED = NAMING | CLOCK | RANDOM | SURROUNDINGS | _STOPPING | _TIME_WINDOWS
"""Functions of Spark that a query which is kept by delta cannot call."""


def is_built_in(name: str) -> bool:
    """Whether Spark has a function of this name, in lower case."""
    return name in _KNOWN or name in REFUSED


THE_TIME = "the time is frozen for each refresh, and every row may change with it"


def why_refused(name: str, arguments: int) -> str | None:
    """Why a query that calls the function cannot be kept by delta; None for all others."""
    if name in CLOCK or (name == "unix_timestamp" and arguments == 0):
        return THE_TIME
    if name in RANDOM:
        return "the function answers differently each time"
    if name in SURROUNDINGS:
        return "the answer depends on the session or the machine"
    if name in NAMING:
        return "its fields are named after columns, which have other names while they are kept"
    if name in _STOPPING:
        return "the function stops the query, and which rows reach it is not defined"
    if name in _TIME_WINDOWS:
        return "time windows are not kept by delta"
    if name not in _KNOWN:
        return "the function is not built into Spark, and may answer differently each time"
    return None
