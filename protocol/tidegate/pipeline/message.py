"""What all messages share: frozen, snake_case, and unknown newer fields survive a round trip."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A value that travels on a topic. Fields of a newer release are kept and sent on."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)
