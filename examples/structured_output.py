"""Structured output: the answer as a value of a type of yours."""

from pydantic import BaseModel

from holdfast import Agent
from holdfast.testing import ScriptedModel


class Weather(BaseModel):
    """What we want to know."""

    city: str
    degrees: int


model = ScriptedModel("It is sunny.", '{"city": "Rome", "degrees": 20}')  # the first is asked again
result = Agent("weather", model=model, output=Weather).run_sync("How is it in Rome?")
print(repr(result.output))
