"""Which devices' readings count: the GPUs of the ranks, and one sensor for each kind of device."""

from study.instruments.power.series import Series

UNKNOWN = "which GPUs the ranks used cannot be told; see CUDA_VISIBLE_DEVICES in docs/telemetry.md"


def counted(
    series: list[Series], order: list[str], used: set[str | None], fill_nodes: bool, why: str | None = None
) -> tuple[list[Series], dict[str, str]]:
    """(series that count, {kind: reason why none counts}) of a run.

    series: a list of `Series`. order: the machine's ``power_sensors``; if two sensors read the same kind on a
    host, only the first counts, so that no joule is added twice. used: the UUIDs of the ranks' GPUs; empty if the ranks
    have no GPU. If it contains None, the ranks' GPUs cannot be identified. fill_nodes: whether the ranks use all GPUs
    of their nodes; then a sensor that does not tell GPUs apart counts too. why: the ranks' GPUs cannot be identified.
    """
    kept = of_first_sensors(series, order)
    by_uuid = [each for each in kept if each.sensor == "nvml"]
    if used and not by_uuid and not fill_nodes:
        return [each for each in kept if each.kind != "gpu"], {
            "gpu": "no sensor tells GPUs apart (nvml), and the ranks may not have used all GPUs of their nodes"
        }
    if not used or not by_uuid:
        return kept, {}
    others = [each for each in kept if each.sensor != "nvml"]
    if None in used:
        return others, {"gpu": why or UNKNOWN}
    read = {each.name for each in by_uuid}
    missing = sorted(gpu for gpu in used if gpu is not None and gpu not in read)
    if missing:
        return others, {"gpu": f"no readings of GPU {missing[0]}, which a rank used"}
    return [*others, *(each for each in by_uuid if each.name in used)], {}


def of_first_sensors(series: list[Series], order: list[str]) -> list[Series]:
    """Of each kind of device on a host, those that the first sensor of ``order`` reads; as of `counted`."""
    first: dict[tuple[str, str], str] = {}
    for each in sorted(series, key=lambda each: order.index(each.sensor) if each.sensor in order else len(order)):
        first.setdefault((each.host, each.kind), each.sensor)
    return [each for each in series if first[each.host, each.kind] == each.sensor]


def of_the_ranks(series: list[Series], order: list[str], used: set[str | None]) -> list[Series]:
    """The devices whose power over time is a run's; as of `counted`, and all GPUs where the ranks' own are unknown."""
    kept = of_first_sensors(series, order)
    is_known = bool(used) and None not in used
    return [each for each in kept if not is_known or each.sensor != "nvml" or each.name in used]
