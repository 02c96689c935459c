"""The compiled parser of text tables; without a C++17 compiler it is left out, and the study does without it."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "study.data._numbers",
            ["scripts/study/data/_numbers.cpp"],
            extra_compile_args=["-std=c++17", "-O3"],
            optional=True,
        )
    ]
)
