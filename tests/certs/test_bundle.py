"""Which authorities stand in a bundle, and what is written."""

from __future__ import annotations

import base64

from certs import bundle
from certs.cluster import MUTATING
from tests.certs.cluster import DAY, NOW, FakeCluster, authority, leaf

OLD, NEW = authority(NOW - 400 * DAY), authority(NOW)


def test_the_old_authority_stays_until_it_expires() -> None:
    assert bundle.trusted(NEW.cert, [OLD.cert], NOW) == (NEW.cert, OLD.cert)
    assert bundle.trusted(NEW.cert, [NEW.cert + OLD.cert, OLD.cert], NOW + 300 * DAY) == (NEW.cert, OLD.cert)
    assert bundle.trusted(NEW.cert, [NEW.cert + OLD.cert], NOW + 330 * DAY) == (NEW.cert,)


def test_only_authorities_and_only_what_can_be_read() -> None:
    pem = b"junk\n" + OLD.cert + OLD.cert[:200] + leaf(OLD).cert + b"-----END CERTIFICATE-----"
    assert bundle.trusted(NEW.cert, [pem], NOW) == (NEW.cert, OLD.cert)
    assert bundle.split(b"") == bundle.split(b"\x00\xff") == ()


def test_bounded() -> None:
    many = [authority(NOW - number * DAY).cert for number in range(20)]
    kept = bundle.trusted(NEW.cert, many, NOW)
    assert kept == (NEW.cert, *many[: bundle.LIMIT - 1])


def test_what_is_wrong_with_a_bundle() -> None:
    cluster = FakeCluster()
    configuration = cluster.configuration(MUTATING, "checkpoint-guard")
    assert configuration is not None
    hooks = configuration["webhooks"]
    names = [hook["name"] for hook in hooks]

    def wrong(first: bytes | str) -> list[str]:
        text = first if isinstance(first, str) else base64.b64encode(first).decode()
        hooks[0]["clientConfig"]["caBundle"] = text
        hooks[1]["clientConfig"]["caBundle"] = base64.b64encode(NEW.cert + OLD.cert).decode()
        return list(bundle.wrong(configuration, (NEW.cert, OLD.cert)))

    assert list(bundle.wrong(configuration, (NEW.cert,))) == [f"{name}: has none" for name in names]
    assert wrong(NEW.cert + OLD.cert) == []
    assert wrong(OLD.cert) == [f"{names[0]}: lacks 1 of 2 authorities"]
    assert wrong(OLD.cert + NEW.cert) == [f"{names[0]}: is in another order or form"]
    assert wrong(NEW.cert + OLD.cert + authority().cert) == [f"{names[0]}: trusts 1 too many"]
    for nonsense in ("!", "AAAA", ""):
        assert len(wrong(nonsense)) == 1


def test_a_patch_names_bundles_and_nothing_else() -> None:
    configuration = FakeCluster().configuration(MUTATING, "checkpoint-guard")
    assert configuration is not None
    text = base64.b64encode(NEW.cert).decode()
    assert bundle.patch(configuration, (NEW.cert,)) == {
        "metadata": {"resourceVersion": configuration["metadata"]["resourceVersion"]},
        "webhooks": [
            {"name": "mutate.checkpoint-guard.io", "clientConfig": {"caBundle": text}},
            {"name": "put-back.checkpoint-guard.io", "clientConfig": {"caBundle": text}},
        ],
    }
