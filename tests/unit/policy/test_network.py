import pytest

from holdfast.errors import PermissionDenied
from holdfast.policy import BadHost, NetworkRules, join_port, split_port
from holdfast.policy.patterns import clean_target, compile_matcher

OPEN = NetworkRules(allow_net=True, allowed_hosts=("*",), blocked_hosts=("*.evil.org",))


def test_everything_is_closed_by_default():
    with pytest.raises(PermissionDenied):
        NetworkRules(allowed_hosts=("*",)).check_host("example.org")
    with pytest.raises(PermissionDenied):
        NetworkRules(allow_net=True).check_host("example.org")


@pytest.mark.parametrize("host", ["a.evil.org", "evil.org", "EVIL.org.", "x.y.evil.org"])
def test_block_wins(host):
    with pytest.raises(PermissionDenied):
        OPEN.check_host(host)


@pytest.mark.parametrize(
    ("pattern", "host", "is_allowed"),
    [
        ("*.example.org", "api.example.org", True),
        ("*.example.org", "example.org", True),
        ("example.org", "example.org", True),
        ("example.org", "a.example.org", False),
        ("*.example.org", "badexample.org", False),
        ("*.example.org", "example.org.evil.com", False),
    ],
)
def test_allowed_hosts_are_globs_on_names(pattern, host, is_allowed):
    rules = NetworkRules(allow_net=True, allowed_hosts=(pattern,))
    if is_allowed:
        rules.check_host(host)
    else:
        with pytest.raises(PermissionDenied):
            rules.check_host(host)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fd00:ec2::254",
        "not an address",
    ],
)
def test_private_address_is_refused(address):
    with pytest.raises(PermissionDenied):
        OPEN.check_address("host", address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8"])
def test_public_address_is_fine(address):
    OPEN.check_address("host", address)


def test_private_range_can_be_granted():
    rules = NetworkRules(private_networks=("127.0.0.0/8",))
    rules.check_address("host", "127.0.0.1")
    rules.check_address("host", "::ffff:127.0.0.1")
    for address in ("10.0.0.1", "::1"):
        with pytest.raises(PermissionDenied):
            rules.check_address("host", address)


@pytest.mark.parametrize(
    "host", ["", ".", "a..b", "x" * 300, "a b", "\u2603" * 70 + ".test", "1.2.3", "0x7f.1", "a/b"]
)
def test_host_that_can_be_read_in_two_ways_is_refused(host):
    with pytest.raises(PermissionDenied):
        OPEN.check_host(host)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("EXAMPLE.org.", "example.org"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("fa\u00df.de", "xn--fa-hia.de"),  # IDNA 2008, as HTTP clients have it; not fass.de
        ("FA\u1e9e.de", "xn--fa-hia.de"),
        ("[::1]", "::1"),
        ("\uff41.test", "a.test"),
        ("a\u3002test", "a.test"),
        ("192.168.0.1", "192.168.0.1"),
    ],
)
def test_host_has_one_spelling(host, name):
    assert OPEN.check_host(host) == name


@pytest.mark.parametrize(
    ("blocked", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("127.0.0.1", "64:ff9b::7f00:1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("[::1]", "0:0:0:0:0:0:0:1"),
        ("::1", "::1%lo"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("10.*", "10.2.3.4"),
        ("10.*", "::ffff:10.2.3.4"),
        ("93.184.216.34", "93.184.216.34"),
    ],
)
def test_a_name_that_leads_to_a_blocked_address_is_blocked(blocked, address):
    rules = NetworkRules(
        allow_net=True,
        allowed_hosts=("*",),
        blocked_hosts=("other.example", blocked),
        private_networks=("0.0.0.0/0", "::/0"),
    )
    with pytest.raises(PermissionDenied, match="blocked"):
        rules.check_address("innocent.example", address)


def test_a_block_of_one_address_leaves_the_others():
    rules = NetworkRules(
        allow_net=True,
        allowed_hosts=("*",),
        blocked_hosts=("127.0.0.1", "*.example.org"),
        private_networks=("127.0.0.0/8",),
    )
    rules.check_address("host", "127.0.0.2")
    rules.check_address("host", "93.184.216.34")


PORTS = [
    # allowed, blocked, host, port, whether it is open
    (("a.test",), (), "a.test", 80, True),
    (("a.test",), (), "a.test", 443, True),
    (("a.test",), (), "a.test", 8080, False),
    (("a.test",), (), "a.test", 22, False),
    (("*",), (), "b.test", 9200, False),
    (("a.test:8080",), (), "a.test", 8080, True),
    (("a.test:8080",), (), "a.test", 443, False),
    (("a.test:8080",), (), "a.test", 8081, False),
    (("a.test:22",), (), "a.test", 22, True),
    (("*.a.test:8080",), (), "x.a.test", 8080, True),
    (("a.test:*",), (), "a.test", 9200, True),
    (("a.test:*",), (), "a.test", 25, False),
    (("a.test:*",), ("a.test:9200",), "a.test", 9200, False),
    (("a.test:*",), ("a.test:9200",), "a.test", 9201, True),
    (("a.test", "b.test:8080"), (), "a.test", 8080, False),
    (("[2001:db8::1]:8080",), (), "2001:db8::1", 8080, True),
    (("[2001:db8::1]:8080",), (), "2001:db8::1", 80, False),
    (("A.TEST:8080",), (), "a.test", 8080, True),
]


@pytest.mark.parametrize(("allowed", "blocked", "host", "port", "is_open"), PORTS)
def test_ports_are_those_of_the_web_unless_a_rule_names_others(
    allowed, blocked, host, port, is_open
):
    rules = NetworkRules(allow_net=True, allowed_hosts=allowed, blocked_hosts=blocked)
    assert rules.check_host(host) == host
    if is_open:
        rules.check_port(host, port)
        return
    with pytest.raises(PermissionDenied):
        rules.check_port(host, port)


def test_a_blocked_host_is_blocked_at_every_port_and_a_blocked_port_at_its_own():
    rules = NetworkRules(allow_net=True, allowed_hosts=("*:*",), blocked_hosts=("b.test:*",))
    with pytest.raises(PermissionDenied):
        rules.check_host("b.test")
    with pytest.raises(BadHost):
        split_port("a.test:70000")
    rated = NetworkRules(allow_net=True, host_rates=(("a.test:8080", 3),))
    assert rated.find_rate("a.test") == 3


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("a.test", ("a.test", "a.test:8080"), ("b.test",)),
        ("a.test:*", ("a.test", "a.test:8080"), ("b.test:8080",)),
        ("a.test:443", ("a.test",), ("a.test:8080",)),
        ("a.test:8080", ("a.test:8080",), ("a.test", "a.test:8081", "b.test:8080")),
        ("[2001:db8::1]:8080", (join_port("2001:db8::1", 8080),), ("2001:db8::1",)),
    ],
)
def test_a_rule_for_a_host_means_the_port_that_it_names(pattern, matched, others):
    matches = compile_matcher(pattern, "host")
    assert [name for name in (*matched, *others) if matches(clean_target(name, "host"))] == list(
        matched
    )
