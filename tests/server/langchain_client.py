"""LangChain's clients against leq-server: langchain_client.py TOOLS. Skipped without langchain-openai."""

import sys
from typing import Literal, Optional

from served import Served, check, skip

try:
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from pydantic import BaseModel, Field
except ImportError:
    skip("the Python package langchain-openai is not installed")


class Address(BaseModel):
    street: str = Field(max_length=12)
    number: int = Field(ge=1, le=9999)


class Person(BaseModel):
    """A person of a story."""
    name: str = Field(min_length=1, max_length=12)
    age: int = Field(ge=0, lt=130)
    mood: Literal["glad", "sad"]
    home: Optional[Address] = None
    score: float = Field(gt=0, le=1)


def main():
    with Served(sys.argv[1]) as served:
        base = dict(base_url=served.url + "/v1", api_key="none", model="storyteller", seed=3)
        chat = ChatOpenAI(**base, max_tokens=40)
        text = chat.invoke("Tell me a story.").content
        check(len(text) > 20, "invoke")
        check("".join(c.content for c in chat.stream("Tell me a story.")) == text, "stream")
        for method in ("json_schema", "function_calling"):
            person = ChatOpenAI(**base, max_tokens=400).with_structured_output(
                Person, method=method).invoke("Who is it?")
            check(isinstance(person, Person), f"with_structured_output, {method}: {person}")
        stateless = {k: v for k, v in base.items() if k != "seed"}
        responses = ChatOpenAI(**stateless, max_tokens=40, use_responses_api=True)
        check(len(responses.invoke("Tell me a story.").text) > 20, "the Responses API")
        parts = list(responses.stream("Tell me a story."))
        check(len("".join(p.text for p in parts)) > 20, "its stream")
        numbers = OpenAIEmbeddings(**{k: base[k] for k in ("base_url", "api_key", "model")},
                                   check_embedding_ctx_length=False, dimensions=32)
        check(len(numbers.embed_documents(["a cat", "a dog"])[1]) == 32, "embeddings")
        try:
            from langchain_anthropic import ChatAnthropic
        except ImportError:
            return
        claude = ChatAnthropic(base_url=served.url, api_key="none", model="storyteller", max_tokens=40)
        check(len(claude.invoke("Tell me a story.").text) > 20, "ChatAnthropic")


if __name__ == "__main__":
    main()
