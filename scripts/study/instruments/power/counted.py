"""Which devices' readings count: of the GPUs those of the ranks, and of several sensors of one thing only one."""


def counted(series, order, used):
    """(series that count, {kind: why none counts}) of a run.

    series: a list of `energy.Series`. order: the machine's ``power_sensors``; of two sensors that read the
    same kind on a host the first one's count, so that no joule is added twice. used: the UUIDs of the ranks' GPUs;
    with None in it the ranks' GPUs cannot be told from others'. Empty where the ranks have no GPU.
    """
    first = {}
    for each in sorted(series, key=lambda each: order.index(each.sensor) if each.sensor in order else len(order)):
        first.setdefault((each.host, each.kind), each.sensor)
    kept = [each for each in series if first[each.host, each.kind] == each.sensor]
    by_uuid = [each for each in kept if each.sensor == "nvml"]
    if not used or not by_uuid:
        return kept, {}
    others = [each for each in kept if each.sensor != "nvml"]
    if None in used:
        return others, {
            "gpu": "which GPUs the ranks used cannot be told; see CUDA_VISIBLE_DEVICES in docs/telemetry.md"
        }
    missing = sorted(used - {each.name for each in by_uuid})
    if missing:
        return others, {"gpu": f"no readings of GPU {missing[0]}, which a rank used"}
    return [*others, *(each for each in by_uuid if each.name in used)], {}
