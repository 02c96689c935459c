"""The tables, each a function from the tidy tables to a `study.tables.layout.Table`."""

from study.tables import icpp2019, scaling

TABLES = {
    "scaling": scaling.scaling,
    "icpp2019_table2": icpp2019.table2,
    "icpp2019_table3": icpp2019.table3,
    "icpp2019_table6": icpp2019.table6,
}
