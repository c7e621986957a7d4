"""The base of all sections of RUN.toml, and the kinds of numbers in them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Seconds = Annotated[float, Field(gt=0.0, le=1e9)]


class Section(BaseModel):
    """Base of all sections: immutable, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)
