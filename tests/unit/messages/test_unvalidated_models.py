from tidegate_delta.log.actions import Add
from tidegate_messages.unvalidated_models import trusted

BODY = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True}


def test_a_model_is_what_its_validator_would_have_made() -> None:
    wanted = Add.model_validate(BODY)
    result = trusted(Add, dict(vars(wanted)), set(wanted.model_fields_set), {})
    assert result == wanted
    assert result.model_fields_set == wanted.model_fields_set
    assert (result.model_extra, result.to_row()) == (wanted.model_extra, wanted.to_row())


def test_what_models_share_is_not_changed_by_a_copy_of_one() -> None:
    wanted = Add.model_validate(BODY)
    given, more = set(wanted.model_fields_set), dict[str, object]()
    one, other = (trusted(Add, dict(vars(wanted)), given, more) for _ in range(2))
    copy = one.with_(stats="{}", newer=1)
    assert copy.stats == "{}"
    assert (one, other, more) == (wanted, wanted, {})
    assert given == wanted.model_fields_set
