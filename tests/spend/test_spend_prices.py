"""List prices are found by exact id and day only, and costs equal hand arithmetic."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparse.model import Usage
from traceparse.spend import pricelists
from traceparse.spend.prices import Price, Rates, Tier, cost, price_for, price_list_version

DAY = datetime.date(2026, 7, 1)


def price(**changes):
    """USD per million: input 10, read 1, write 12.5 and 20, output 50."""
    values = {
        "provider": "anthropic",
        "model": "m",
        "source": "a list",
        "input_usd_per_mtok": 10.0,
        "cache_read_usd_per_mtok": 1.0,
        "cache_write_5m_usd_per_mtok": 12.5,
        "cache_write_1h_usd_per_mtok": 20.0,
        "output_usd_per_mtok": 50.0,
    }
    return Price(**values | changes)


def usage(uncached=0, read=0, write=0, hour=0, output=0):
    return Usage(uncached_input=uncached, cache_read=read, cache_write=write, cache_write_1h=hour, output=output)


# -- cost


def test_every_part_at_its_own_price():
    # 1,000 x 10 + 90,000 x 1 + 2,000 x 12.5 + 4,000 x 20 + 3,000 x 50 = 355,000 millionths of a dollar
    bill = cost(usage(uncached=1_000, read=90_000, write=6_000, hour=4_000, output=3_000), price())
    assert bill.usd == bill.low_usd == bill.high_usd == pytest.approx(0.355)
    assert bill.output_usd == pytest.approx(0.15)


def test_one_hour_writes_cost_twice_the_input_not_five_quarters():
    # 100 tokens: 100 x 20 = 2,000 against 100 x 12.5 = 1,250 millionths
    assert cost(usage(write=100, hour=100), price()).usd == pytest.approx(0.002)
    assert cost(usage(write=100, hour=0), price()).usd == pytest.approx(0.00125)


def test_unknown_lifetime_of_writes_gives_bounds_and_the_five_minute_value():
    bill = cost(usage(write=100, hour=None), price())
    assert (bill.low_usd, bill.usd, bill.high_usd) == pytest.approx((0.00125, 0.00125, 0.002))
    assert "lifetime unknown" in bill.basis


def test_long_prompt_tier_is_chosen_by_the_whole_prompt_and_prices_the_whole_request():
    # 50 k fresh + 160 k written = 210 k > 200 k: 50,000 x 6 + 160,000 x 7.5 = 1.5 USD, not base, not only the excess
    listed = price_for("claude-sonnet-4-5", "claude", DAY)
    assert cost(usage(uncached=50_000, write=160_000), listed).usd == pytest.approx(1.5)
    # 200 k exactly is still base: 50,000 x 3 + 150,000 x 0.3 = 0.195 USD
    assert cost(usage(uncached=50_000, read=150_000), listed).usd == pytest.approx(0.195)


def test_a_total_of_many_requests_has_no_tier():
    tiered = price(tiers=(Tier(above_prompt_tokens=200_000, input_usd_per_mtok=20.0, output_usd_per_mtok=75.0),))
    bill = cost(usage(uncached=1_000_000, output=10_000), tiered, whole_run=True)
    assert (bill.low_usd, bill.usd) == pytest.approx((10.5, 10.5))  # 1 M x 10 + 10 k x 50
    assert bill.high_usd == pytest.approx(20.75)  # 1 M x 20 + 10 k x 75
    assert "tier unknown" in bill.basis


def test_cached_openai_input_is_billed_once():
    # A log says input 100, cached 90; net that is 10 uncached + 90 read: 10 x 5 + 90 x 0.5 = 95 millionths
    net = Usage(uncached_input=10, cache_read=90, output=0)
    assert cost(net, price_for("gpt-5.5", "codex", DAY)).usd == pytest.approx(95e-6)


def test_without_a_read_price_reads_cost_what_input_costs():
    plain = price(cache_read_usd_per_mtok=None, cache_write_5m_usd_per_mtok=None, cache_write_1h_usd_per_mtok=None)
    assert cost(Usage(uncached_input=10, cache_read=90, output=0), plain).usd == pytest.approx(0.001)
    assert cost(Usage(uncached_input=100, output=0), plain).usd == pytest.approx(0.001)


def test_unknown_output_or_input_leaves_no_cost_but_a_lower_bound():
    no_output = cost(Usage(uncached_input=100, cache_read=0, cache_write=0), price())
    assert (no_output.usd, no_output.high_usd, no_output.output_usd) == (None, None, None)
    assert no_output.low_usd == pytest.approx(0.001)
    no_input = cost(Usage(output=1_000), price())
    assert (no_input.usd, no_input.high_usd) == (None, None)
    assert no_input.output_usd == no_input.low_usd == pytest.approx(0.05)


def test_unknown_reads_give_bounds_over_what_the_input_can_hold():
    # A route that logs the whole prompt as input: all of it read (1,000 x 1) to none of it (1,000 x 10)
    bill = cost(Usage(uncached_input=1_000, cache_write=0, output=0), price())
    assert bill.usd is None
    assert (bill.low_usd, bill.high_usd) == pytest.approx((0.001, 0.01))
    assert "cache reads unknown" in bill.basis


def test_negative_counts_are_unknown_counts():
    assert cost(usage(uncached=-5), price()).usd is None


def test_other_prices_of_the_day_widen_the_bounds():
    peak = price(alternatives=(Rates(input_usd_per_mtok=20.0, output_usd_per_mtok=100.0),))
    bill = cost(usage(uncached=1_000, output=1_000), peak)
    assert (bill.low_usd, bill.usd, bill.high_usd) == pytest.approx((0.06, 0.06, 0.12))


counts = st.one_of(st.none(), st.integers(-3, 10**9))


@given(st.builds(Usage, counts, counts, counts, counts, counts), st.booleans())
def test_the_value_lies_within_its_bounds(tokens, whole_run):
    tiered = price(tiers=(Tier(above_prompt_tokens=1_000, input_usd_per_mtok=20.0, output_usd_per_mtok=75.0),))
    bill = cost(tokens, tiered, whole_run=whole_run)
    high = float("inf") if bill.high_usd is None else bill.high_usd
    assert 0 <= bill.low_usd <= high
    if bill.usd is not None:
        assert bill.low_usd <= bill.usd <= high
        assert tokens.output is not None
        assert tokens.uncached_input is not None


# -- which price


@pytest.mark.parametrize(
    ("model", "harness", "provider", "listed", "rates"),
    [
        # The vendors' price pages: input, cache read, 5-minute write, 1-hour write, output per million tokens.
        ("claude-fable-5", "claude", "anthropic", "claude-fable-5", (10, 1, 12.5, 20, 50)),
        ("claude-opus-4-8", "claude", "anthropic", "claude-opus-4-8", (5, 0.5, 6.25, 10, 25)),
        ("claude-opus-4-8[1m]", "claude", "anthropic", "claude-opus-4-8", (5, 0.5, 6.25, 10, 25)),
        ("claude-haiku-4-5-20251001", "claude", "anthropic", "claude-haiku-4-5", (1, 0.1, 1.25, 2, 5)),
        ("gpt-5.5", "codex", "openai", "gpt-5.5", (5, 0.5, None, None, 30)),
        ("gemini-3.5-flash", "gemini", "google", "gemini-3.5-flash", (1.5, 0.15, None, None, 9)),
        ("glm-5.2", "zai-claude", "zai", "GLM-5.2", (1.4, 0.26, None, None, 4.4)),
        ("kimi-k2.7-code", "kimi-claude", "moonshotai", "kimi-k2.7-code", (0.95, 0.19, None, None, 4)),
        ("moonshot-ai/kimi-k2.7-code", "kimi", "moonshotai", "kimi-k2.7-code", (0.95, 0.19, None, None, 4)),
        ("MiniMax-M3", "minimax-claude", "minimax", "minimax-m3", (0.3, 0.06, None, None, 1.2)),
        ("deepseek-v4-pro", "deepseek-claude", "deepseek", "deepseek-v4-pro", (0.435, 0.003625, None, None, 0.87)),
        ("deepseek/deepseek-v4-flash", "opencode", "deepseek", "deepseek-v4-flash", (0.14, 0.0028, None, None, 0.28)),
        ("zai_glm-5.1", "opencode", "zai", "GLM-5.1", (1.4, 0.26, None, None, 4.4)),
        ("Composer 2.5 Fast", "cursor", "cursor", "composer-2.5-fast", (3, 0.5, None, None, 15)),
        ("kinetic-0715[1m]", "kinetic-claude", "moonshotai", "kimi-k3", (3, 0.3, 3, 6, 15)),
        ("anthropic/claude-fable-5", "or-fable", "openrouter", "anthropic/claude-fable-5", (10, 1, 12.5, 20, 50)),
        ("LongCat-2.0", "longcat-claude", "longcat", "LongCat-2.0", (0.3, 0.006, None, None, 1.2)),
        ("claude-opus-5", None, "anthropic", "claude-opus-5", (5, 0.5, 6.25, 10, 25)),
    ],
)
def test_board_models_have_their_vendors_price(model, harness, provider, listed, rates):
    found = price_for(model, harness, DAY)
    assert (found.provider, found.model) == (provider, listed)
    assert rates == (
        found.input_usd_per_mtok,
        found.cache_read_usd_per_mtok,
        found.cache_write_5m_usd_per_mtok,
        found.cache_write_1h_usd_per_mtok,
        found.output_usd_per_mtok,
    )


@pytest.mark.parametrize(
    ("model", "harness"),
    [
        ("gpt-5.5-mini", "codex"),  # gpt-5.5 and gpt-5.5-pro are in the list; a mini of 5.5 is not
        ("claude-opus-4-8-preview", "claude"),  # the list's own rule is a prefix and would take it for claude-opus-4-8
        ("deepseek-v4-flash-0731", "deepseek-claude"),  # likewise; four digits are no snapshot date
        ("kimi-k2.6", "claude"),  # another vendor's model is not in Anthropic's list
        ("moonshotai/kimi-k2.6:free", "or-fable"),  # a row without a price
        ("qwen3.8-max-preview", "qwen-claude"),
        ("hy3", "hy3"),
        ("unknown", "opencode"),
        ("", "claude"),
        (None, "claude"),
    ],
)
def test_no_price_rather_than_a_near_one(model, harness):
    assert price_for(model, harness, DAY) is None


def test_price_of_the_day():
    # OpenAI cut GPT-5.6 Sol on 21 August 2026 from 5/30 to 4/20; Opus 4.6 lost its long-prompt tier on 13 March.
    before = price_for("gpt-5.6-sol", "codex", datetime.date(2026, 8, 20))
    after = price_for("gpt-5.6-sol", "codex", datetime.date(2026, 8, 21))
    assert (before.input_usd_per_mtok, before.output_usd_per_mtok) == (5, 30)
    assert (after.input_usd_per_mtok, after.output_usd_per_mtok) == (4, 20)
    assert price_for("claude-opus-4-6", "claude", datetime.date(2026, 3, 12)).tiers[0].output_usd_per_mtok == 37.5
    assert price_for("claude-opus-4-6", "claude", datetime.date(2026, 3, 13)).tiers == ()


def test_without_a_day_the_price_on_which_all_periods_agree():
    # Opus 4.6 costs 5 / 25 in both periods; until 13 March prompts above 200,000 cost 10 / 37.5.
    opus = price_for("claude-opus-4-6", "claude", None)
    short = cost(usage(uncached=100_000, output=1_000), opus)
    assert (short.usd, short.low_usd, short.high_usd) == pytest.approx((0.525, 0.525, 0.525))
    assert "date unknown, the same price in all 2 periods" in short.basis
    long = cost(usage(uncached=300_000), opus)
    assert (long.usd, long.low_usd, long.high_usd) == (None, pytest.approx(1.5), pytest.approx(3.0))
    total = cost(usage(uncached=1_000_000, output=100_000), opus, whole_run=True)
    assert (total.usd, total.low_usd, total.high_usd) == pytest.approx((7.5, 7.5, 13.75))


def test_without_a_day_bounds_where_the_periods_differ():
    # GPT-5.6 Sol: 5 / 30 until 21 August 2026, 4 / 20 from then on.
    bill = cost(usage(uncached=100_000, output=10_000), price_for("gpt-5.6-sol", "codex", None))
    assert (bill.usd, bill.output_usd) == (None, None)
    assert (bill.low_usd, bill.high_usd) == pytest.approx((0.6, 0.8))
    assert "date unknown, bounds over all 2 periods" in bill.basis
    steady = price_for("gpt-5.5", "codex", None)
    assert (steady.output_usd_per_mtok, steady.others) == (30, ())


def test_hours_of_the_day_do_not_reach_back_before_they_began():
    # DeepSeek billed by the hour from 16 August 2026 on: 0.66/1.98 off peak, 1.32/3.96 at peak. In June one price held.
    june = price_for("deepseek-v4-pro", "deepseek-claude", datetime.date(2026, 6, 14))
    assert june.alternatives == ()
    september = price_for("deepseek-v4-pro", "deepseek-claude", datetime.date(2026, 9, 1))
    assert september.output_usd_per_mtok == 1.98
    assert {other.output_usd_per_mtok for other in september.alternatives} == {3.96}
    # and before its discount of 26 April, 1.74/3.48
    assert price_for("deepseek/deepseek-v4-pro", "opencode", datetime.date(2026, 4, 25)).output_usd_per_mtok == 3.48


def test_a_row_of_another_vendor_or_of_zeros_never_answers(monkeypatch):
    class Row:
        id = "gpt-9"
        match = None
        prices = type("P", (), {"input_mtok": 0, "output_mtok": 0, "cache_read_mtok": None})()

        def __init__(self, **prices):
            if prices:
                self.prices = type("P", (), prices)()

    nothing = {"cache_read_mtok": None, "cache_write_mtok": None, "cache_write_1h_mtok": None}
    rows = {
        "reseller": [Row(input_mtok=0, output_mtok=0, **nothing)],
        "openai": [Row(input_mtok=9, output_mtok=9, **nothing)],
        "google": [Row(input_mtok=0, output_mtok=0, **nothing)],
    }
    monkeypatch.setattr(pricelists, "_bundled", lambda: rows)
    memories = (pricelists._ids, pricelists._history, pricelists.price_history)
    for memory in memories:
        memory.cache_clear()
    try:
        assert price_for("gpt-9", "codex", DAY).output_usd_per_mtok == 9
        assert price_for("gpt-9", None, DAY).provider == "openai"
        assert price_for("gpt-9-mini", "codex", DAY) is None
        assert price_for("gpt-9", "gemini", DAY) is None
    finally:
        for memory in memories:
            memory.cache_clear()


def test_every_override_names_a_public_source_and_a_known_model():
    declared = pricelists.overrides()
    for row in declared.price:
        assert row.source.startswith("https://")
        assert pricelists.price_history(row.model, next(h for h, p in declared.routes.items() if p == row.provider))
    for alias in declared.alias:
        assert alias.id.lower() in pricelists._ids(alias.provider)


def test_version_names_both_lists():
    assert price_list_version().startswith("genai-prices ")
    assert price_list_version().endswith(f"+ overrides {pricelists.overrides().version}")
